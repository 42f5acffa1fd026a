"""The public addresses of the files, each with the checksum its publishers or users agree on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from evomal.tasks.datasets import california, cifar10, cifar100, mnist, svhn


@dataclass(frozen=True)
class Source:
    """One file to download."""

    file: str
    urls: tuple[str, ...]  # tried in this order
    checksum: str  # "algorithm:hexadecimal digest"
    members: Mapping[str, str] = field(
        default_factory=dict
    )  # of an archive: name inside → name in the dataset's folder


_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_SVHN = "http://ufldl.stanford.edu/housenumbers/"


def _mnist(file: str, md5: str) -> Source:
    return Source(file, tuple(base + file for base in _MNIST), f"md5:{md5}")


def _cifar(file: str, md5: str, members: tuple[str, ...]) -> Source:
    return Source(file, (_CIFAR + file,), f"md5:{md5}", {name: name for name in members})


def _svhn(file: str, md5: str) -> Source:
    return Source(file, (_SVHN + file,), f"md5:{md5}")


SOURCES: dict[str, tuple[Source, ...]] = {
    "diabetes": (),  # ships with scikit-learn
    "boston": (),  # no address is known whose owners publish a checksum
    "california": (
        Source(
            "cal_housing.tgz",
            ("https://ndownloader.figshare.com/files/5976036",),
            "sha256:aaa5c9a6afe2225cc2aed2723682ae403280c4a3695a2ddda4ffb5d8215ea681",
            {"CaliforniaHousing/cal_housing.data": california.FILE},
        ),
    ),
    "mnist": (
        _mnist(mnist.TRAIN_IMAGES, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        _mnist(mnist.TRAIN_LABELS, "d53e105ee54ea40749a09fcbcd1e9432"),
        _mnist(mnist.TEST_IMAGES, "9fb629c4189551a2d022fa330f9573f3"),
        _mnist(mnist.TEST_LABELS, "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "cifar10": (_cifar("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", cifar10.FILES),),
    "cifar100": (_cifar("cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", cifar100.FILES),),
    "svhn": (
        _svhn(svhn.TRAIN_FILE, "e26dedcc434d2e4c54c9b2d4a06d8373"),
        _svhn(svhn.TEST_FILE, "eb5a983be6a315427106f1b164d9cef3"),
    ),
}
