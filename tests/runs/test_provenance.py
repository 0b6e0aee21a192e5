import shlex
import sys

from recollect.runs.provenance import command


def test_the_command_can_be_typed_again(monkeypatch):
    words = ["train", "gym:Ant-v5", "--world.options", '{"terminate": false}', "--name", "two words", "--tag", ""]
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/recollect", *words])
    assert shlex.split(command()) == ["recollect", *words]
    monkeypatch.setattr(sys, "argv", ["/somewhere/recollect/__main__.py", "list", "--seeds", "0", "1"])
    assert command() == "recollect list --seeds 0 1"
