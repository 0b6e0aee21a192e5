"""Steps of an exported model, and its self-test: python client.py FOLDER."""
import json, pathlib, sys
import numpy as np
import onnxruntime


class Model:
    def __init__(self, folder=".", rows=1):
        folder = pathlib.Path(folder)
        about = json.loads((folder / "manifest.json").read_text())
        self.session = onnxruntime.InferenceSession(str(folder / about["file"]), providers=["CPUExecutionProvider"])
        self.inputs, self.leaves, self.order = about["inputs"], about["state"], about["order"]["outputs"]
        self.state, self.outputs = {}, {}
        for leaf in self.leaves:
            shape = (rows, *leaf["shape"][1:])
            self.state[leaf["input"]] = np.broadcast_to(np.asarray(leaf["initial"], leaf["dtype"]), shape).copy()

    def step(self, is_first, **given):
        """Take one step of every row; is_first[row] begins an episode. What the model said before is fed back."""
        feeds = {"is_first": np.asarray(is_first, bool), **given}
        for one in self.inputs:
            if one["name"] not in feeds:
                empty = np.zeros((len(feeds["is_first"]), *one["shape"][1:]), one["dtype"])
                feeds[one["name"]] = self.outputs.get(one.get("previous_output"), empty)
        found = dict(zip(self.order, self.session.run(self.order, {**feeds, **self.state})))
        self.state = {leaf["input"]: found.pop(leaf["output"]) for leaf in self.leaves}
        self.outputs = found
        return found


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    test, worst = np.load(folder / "selftest.npz"), 0.0
    model = Model(folder, test["inputs.is_first"].shape[1])
    for t, first in enumerate(test["inputs.is_first"]):
        given = {name[7:]: test[name][t] for name in test.files if name.startswith("inputs.")}
        for name, got in model.step(given.pop("is_first"), **given).items():
            want = test["outputs." + name][t]
            if want.dtype.kind == "f":
                worst = max(worst, np.abs(got - want).max() / max(np.abs(want).max(), 1e-30))
    print(f"{len(test['inputs.is_first'])} steps, largest relative difference {worst:.1e}")
    sys.exit(worst > 1e-4)
