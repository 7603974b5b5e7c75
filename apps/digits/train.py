"""Train both classifiers and write models, test data and calibration data: `python -m rewrite_compiler.apps.digits.train`."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from .data import Images, calibration, split
from .export import to_onnx
from .network import CNN, MLP, Network, accuracy, freeze, train

NETWORKS: dict[str, Network] = {"cnn": CNN, "mlp": MLP}
EPOCHS, SEED = 40, 0


def write_data(path: Path, images: Images) -> None:
    """Write images and labels under the names that the models and the metrics use."""
    np.savez_compressed(path, image=images.image, labels=images.labels)


def write_all(folder: Path, epochs: int = EPOCHS) -> dict[str, float]:
    """Train and write everything into `folder`; return each network's accuracy on the test images."""
    training, test = split(SEED)
    write_data(folder / "test.npz", test)
    write_data(folder / "calibration.npz", calibration(training))
    return {name: _write_network(folder, name, training, test, epochs) for name in NETWORKS}


def _write_network(folder: Path, name: str, training: Images, test: Images, epochs: int) -> float:
    network = NETWORKS[name]
    *_, (_, weights) = train(network, training, epochs, SEED)
    frozen = freeze(network, weights, training.image)
    (folder / f"{name}.onnx").write_bytes(to_onnx(f"digits_{name}", network, frozen).SerializeToString(deterministic=True))
    return accuracy(network, frozen, test)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent, help="where the files go (default: beside this script)")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="passes over the training images (default: %(default)s)")
    options = parser.parse_args()
    for name, value in write_all(options.folder, options.epochs).items():
        print(f"{name}  {value:.1%} of the test images")


if __name__ == "__main__":
    main()
