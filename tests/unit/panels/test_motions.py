import pytest

from kit.panels.motions import Motions


@pytest.fixture
def motions(session):
    return Motions(session)


def test_step_moves_live_ranks_at_the_newest_position_and_replays_elsewhere(motions, session):
    motions.step()
    motions.step()
    motions.start()
    motions.step()
    assert session.calls == [("step", None), ("step", None)]
    assert session.position == 1


def test_held_ranks_are_left_out_of_every_live_motion(motions, session):
    motions.held = {1}
    for motion in (motions.step, motions.over, motions.collective):
        motion()
    assert session.calls == [("step", [0]), ("over", [0]), ("to_collective", [0])]


def test_all_held_says_what_to_do(motions):
    motions.held = {0, 1}
    with pytest.raises(ValueError, match="let one go"):
        motions.step()


def test_next_collective_in_the_record_stops_before_the_next_operation(motions, session):
    session.revealed = 5
    session.seek(0)
    found = []
    for _ in range(3):
        motions.collective()
        found.append(session.position)
    assert found == [1, 2, 4], "before the send, before the receive, the end"
    assert session.calls == []


def test_finish_from_the_middle_of_the_record_goes_to_its_end_and_on(motions, session):
    session.revealed = 3
    session.seek(1)
    motions.finish()
    assert session.calls == [("finish", None)]
    assert session.position == 4
    assert motions.settled and not motions.can_move


def test_nothing_moves_when_all_have_finished(motions, session):
    motions.finish()
    motions.step()
    assert session.calls == [("finish", None)]


def test_ended_sessions_replay(motions, session):
    motions.step()
    session.lost = "the cluster was reset"
    assert not motions.can_move
    motions.step()
    motions.back()
    assert motions.can_move
    motions.step()
    assert [call for call, _ in session.calls] == ["step"]


def test_seek_names_the_positions_there_are(motions):
    with pytest.raises(ValueError, match="0 to 0"):
        motions.seek(3)


def test_reset_lets_everybody_go(motions, session):
    motions.held = {0}
    motions.reset()
    assert motions.held == set() and session.calls == [("reset", None)]


def test_reset_of_a_replay_goes_to_its_start(motions, session):
    class Replay:
        trace, state, live, position = session.trace, session.state, False, 4

        def seek(self, index):
            self.position = index

    replay = Motions(Replay())
    replay.reset()
    assert replay.session.position == 0
