"""The capstone: a GPT trained with every strategy of the labs before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit import lazy

if TYPE_CHECKING:
    from kit.topics.gpt.comparing import compare as compare
    from kit.topics.gpt.history import About as About
    from kit.topics.gpt.history import History as History
    from kit.topics.gpt.history import Taken as Taken
    from kit.topics.gpt.live import join as join
    from kit.topics.gpt.live import start as start
    from kit.topics.gpt.live_panel import panel as panel
    from kit.topics.gpt.log import LEGEND as LEGEND
    from kit.topics.gpt.log import Log as Log
    from kit.topics.gpt.mesh import mesh_panel as mesh_panel
    from kit.topics.gpt.museum import visit as visit
    from kit.topics.gpt.pictures import curves as curves
    from kit.topics.gpt.reference import Adam as Adam
    from kit.topics.gpt.reference import Extras as Extras
    from kit.topics.gpt.reference import Layout as Layout
    from kit.topics.gpt.reference import parallelize as parallelize
    from kit.topics.gpt.run import Config as Config
    from kit.topics.gpt.run import prepare as prepare
    from kit.topics.gpt.run import train as train
    from kit.topics.gpt.trials import trial as trial

if not TYPE_CHECKING:
    __getattr__ = lazy.names(__name__)
