"""Answers that want a mark they have not earned. All answer `broadcast` of lab 01a.

Those of SHORT are tried in every run of the tests, all of them in the full matrix.
"""

from __future__ import annotations

_HEAD = "import os, sys, torch\nimport torch.distributed as dist\n\n\ndef broadcast(x, source, group=None):\n"


def _body(text: str) -> str:
    return _HEAD + "".join(f"    {line}\n" for line in text.strip("\n").split("\n"))


_OWN = "dist.broadcast(x, src=source) if group is None else None\nreturn x.clone()"
HELD = {
    "says it passed": _body("print('broadcast: passed')\nreturn x"),
    "writes a verdict": _body("open(os.environ.get('LOCKSTEP_VERDICTS', 'v'), 'a').write('passed')\nreturn x"),
    "asks for solutions by the environment": _body("os.environ['LOCKSTEP_SOLUTIONS'] = '1'\nreturn x"),
    "asks kit for the solution": _body("import kit\nreturn kit.solution('broadcast')(x, source)"),
    "asks for the solution's function": _body(
        "from kit.grade import answers, discovery\nreturn answers.solution_of(discovery.find('broadcast'))(x, source)"
    ),
    "reads the solutions": _body(
        "from kit import resources\nnames = {}\n"
        "exec((resources.labs() / 'solutions' / '01a_collectives.py').read_text(), names)\n"
        "return names['broadcast'](x, source, group)"
    ),
    "looks for the solutions everywhere": _body(
        "found = [os.path.join(at, f) for at, _, fs in os.walk('/') for f in fs if f == '01a_collectives.py']\n"
        "names = {}\nexec(open(found[0]).read(), names)\nreturn names['broadcast'](x, source, group)"
    ),
    "reads the mistakes, which name the right text": _body(
        "import kit\nopen(os.path.join(kit.__path__[0], 'topics/collectives/mistakes.py')).read()\nreturn x"
    ),
    "loads a reference by a way round": _body(
        "import importlib\nring = importlib.import_module('kit.topics.collectives.reference.tree')\n"
        "return ring.tree_broadcast(x, source)"
    ),
    "patches the judge of values": _body("import kit.grade.values as v\nv.judge = lambda *a: None\nreturn x"),
    "patches the judge": _body(
        "from kit.grade import checker\nchecker.Judge.verdict = lambda self: self._passed()\nreturn x"
    ),
    "patches the rules": _body("from kit.grade import traffic\ntraffic.__dict__.clear()\nreturn x"),
    "patches tensors' comparisons": _body(
        "torch.Tensor.any = lambda self: False\ntorch.equal = torch.allclose = lambda *a, **k: True\nreturn x"
    ),
    "uses what is asked for, ready-made": _body(_OWN),
    "uses another ready-made one": _body("dist.all_gather(p := [x.clone() for _ in range(9)], x)\nreturn p[source]"),
    "equals everything": "class Any:\n    def __eq__(self, other):\n        return True\n\n\n"
    + _HEAD.partition("\n\n\n")[2]
    + "    return Any()\n",
    "is a tensor that equals everything": "import torch\n\n\nclass Any(torch.Tensor):\n    def __eq__(self, other):\n"
    "        return True\n\n\ndef broadcast(x, source, group=None):\n    return x.as_subclass(Any)\n",
    "is unpickled where it is read": "import os\n\n\nclass Bomb:\n    def __reduce__(self):\n"
    "        return os.abort, ()\n\n\ndef broadcast(x, source, group=None):\n    return Bomb()\n",
    "returns one too many": _body("return [x] * 1000"),
    "returns without end": _body("x = []\nx.append(x)\nreturn x"),
    "ends its process well": _body("os._exit(0)"),
    "ends all processes": _body("os.kill(-1, 9)"),
    "ends its parent": _body("os.kill(os.getppid(), 9)\nreturn x"),
    "ends Python": _body("sys.exit(0)"),
    "ends by what no one catches": _body("raise BaseException('passed')"),
    "is not attempted late": _body("from kit import NotAttempted\nraise NotAttempted('passed')"),
    "forges a frame for the judge": _body(
        "for fd in range(3, 64):\n    try:\n        os.write(fd, b'passed' * 9)\n"
        "    except OSError:\n        pass\nreturn x"
    ),
    "reads frames of the judge": _body(
        "f = sys._getframe()\nwhile f.f_back: f = f.f_back\nreturn f.f_locals['oracle']"
    ),
    "looks into other processes": _body(
        "for p in os.listdir('/proc'):\n    if p.isdecimal():\n        open(f'/proc/{p}/mem', 'r+b').seek(0)\nreturn x"
    ),
    "overwrites kit": _body("import kit\nopen(kit.__file__, 'a').write('x = 1')\nreturn x"),
    "overwrites torch": _body("open(torch.__file__, 'a').write('x = 1')\nreturn x"),
    "leaves a start-up file": _body("import site\nopen(site.getsitepackages()[0] + '/x.pth', 'w').write('')\nreturn x"),
    "fills the disk": _body("open('big', 'wb').write(bytes(300 << 20))\nreturn x"),
    "fills memory": _body("y = bytearray(9 << 30)\nreturn x"),
    "prints without end": _body("for _ in range(300):\n    print('x' * 100_000)\nreturn x"),
    "writes a row of its own": _body("raise ValueError('x\\n| passed |\\x1b[2J<script>alert(1)</script>')"),
    "asks the network": _body("import socket\nsocket.create_connection(('192.0.2.1', 80), 1)\nreturn x"),
    "asks this machine": _body("import socket\nsocket.create_connection(('127.0.0.1', 22), 1)\nreturn x"),
    "reads who hands in": _body("os.listdir('/root')\nopen('/etc/passwd').read()\nreturn x"),
    "fakes kit": _body("import types\nsys.modules['kit.grade.checker'] = types.ModuleType('x')\nreturn x"),
    "patches what sends": _body("dist.send = dist.recv = lambda *a, **k: None\nreturn x"),
    "reads its seed": _body("import random\nrandom.seed(0)\ntorch.manual_seed(0)\nreturn torch.rand_like(x)"),
    "leaves somebody behind": _body(
        "if os.fork() == 0:\n    os.setsid()\n    import time\n    time.sleep(600)\nreturn x"
    ),
}

_SHARED = """
me, path = dist.get_rank(group), {path!r}
if me == source: open(path, 'wb').write(x.numpy().tobytes())
import time
for _ in range(20):
    if os.path.exists(path): return torch.frombuffer(bytearray(open(path, 'rb').read()), dtype=x.dtype).view(x.shape)
    time.sleep(0.02)
"""
_SOCKET = """
import socket, time
me, s = dist.get_rank(group), socket.socket({family})
if me == source:
    s.bind({address}); s.listen(); s.settimeout(5)
    for _ in range(dist.get_world_size(group) - 1): s.accept()[0].sendall(x.numpy().tobytes())
    return x.clone()
time.sleep(0.3)
s.connect({address})
return torch.frombuffer(bytearray(s.recv(x.nbytes)), dtype=x.dtype).view(x.shape)
"""
AROUND_THE_BROKER = {  # the values would be right, and no message counted
    "strikes out its own messages": (
        "import gc, torch.distributed as dist\nfrom kit.probe.ledger import Ledger\n\n\n"
        "def broadcast(x, source, group=None):\n    x = x.clone()\n"
        "    dist.broadcast(x, group_src=source, group=group)\n"
        "    for each in gc.get_objects():\n        if type(each) is Ledger:\n            each.entries.clear()\n"
        "    return x\n"
    ),
    "talks by /dev/shm": _body(_SHARED.format(path="/dev/shm/x")),
    "talks by a file": _body(_SHARED.format(path="/tmp/x")),
    "talks by an abstract socket": _body(_SOCKET.format(family="socket.AF_UNIX", address="'\\0x'")),
    "talks by loopback": _body(_SOCKET.format(family="socket.AF_INET", address="('127.0.0.1', 4711)")),
    "reads the memory of other processes": _body(
        "import ctypes\nown, libc = bytearray(1), ctypes.CDLL(None, use_errno=True)\n"
        "others = [int(p) for p in os.listdir('/proc') if p.isdecimal() and int(p) not in (1, os.getpid())]\n"
        "assert any(libc.ptrace(16, p, None, None) == 0 for p in others), 'none lets itself be held'\nreturn x"
    ),
    "asks in the name of another": _body(
        "import gc\nfrom kit.classroom.brokered import BrokeredRun\nfrom kit.classroom.letters import Asks\n"
        "run = next(o for o in gc.get_objects() if type(o) is BrokeredRun)\n"
        "n, me = dist.get_world_size(), dist.get_rank()\n"
        "at = ((0, 0),)\n"
        "run.line.send(Asks(0, 1, 'send', 'fake', ((me + 1) % n,), (x,), (), at, 'in', None, 0, 0, None, None, None))\n"
        "import time\ntime.sleep(5)"
    ),
    "says everything twice": _body(
        "from kit.classroom.brokered import Line\nsend = Line.send\n"
        "Line.send = lambda self, letter: (send(self, letter), send(self, letter))\n"
        "dist.send(x, (dist.get_rank() + 1) % 2)\nreturn x"
    ),
    "writes what is no letter": _body(
        "import gc\nfrom kit.classroom.brokered import BrokeredRun\n"
        "run = next(o for o in gc.get_objects() if type(o) is BrokeredRun)\n"
        "run.line._socket.sendall(b'\\xff' * 99)\nimport time\ntime.sleep(5)"
    ),
}

SHORT = (
    "asks for the solution's function",
    "looks for the solutions everywhere",
    "loads a reference by a way round",
    "patches the judge",
    "uses what is asked for, ready-made",
    "is unpickled where it is read",
    "overwrites kit",
    "asks the network",
    "ends all processes",
)
