"""Data sets that are not in the package: their official files, addresses and checksums.

The checksums of CIFAR and of the Fashion-MNIST downloads are those of torchvision. The checksum of
the WikiText-2 download is that of torchtext. The checksum of a file is that of its unpacked
content, because Debian compresses Fashion-MNIST again.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Download:
    """One file to download, and its path in the data folder."""

    address: str
    path: str
    checksum: str


@dataclass(frozen=True)
class Source:
    """A data set as its authors publish it."""

    name: str
    title: str
    folders: tuple[str, ...]
    """Folders that may hold its files, the official one first."""
    files: Mapping[str, str]
    """Checksum of the unpacked content of every file."""
    downloads: tuple[Download, ...]
    archive: str = ""
    """The official archive of all files, if one exists."""
    alternative: str = ""
    """Another way to get the data set, as an instruction."""


def has_checksum(content: bytes, checksum: str) -> bool:
    """Whether the content has the checksum, written as kind:digits."""
    kind, _, digits = checksum.partition(":")
    return hashlib.new(kind, content, usedforsecurity=False).hexdigest() == digits


def _cifar(name: str, title: str, folder: str, archive: str, md5: str, **files: str) -> Source:
    address = f"https://www.cs.toronto.edu/~kriz/{archive}"
    checksums = {file: f"md5:{digits}" for file, digits in files.items()}
    downloads = (Download(address, archive, f"md5:{md5}"),)
    return Source(name, title, (folder,), checksums, downloads, archive)


CIFAR10 = _cifar(
    "cifar10",
    "CIFAR-10",
    "cifar-10-batches-py",
    "cifar-10-python.tar.gz",
    "c58f30108f718f92721af3b95e74349a",
    data_batch_1="c99cafc152244af753f735de768cd75f",
    data_batch_2="d4bba439e000b95fd0a9bffe97cbabec",
    data_batch_3="54ebc095f3ab1f0389bbae665268c751",
    data_batch_4="634d18415352ddfa80567beed471001a",
    data_batch_5="482c414d41f54cd18b22e5b47cb7c3cb",
    test_batch="40351d587109b95175f43aff81a1287e",
)

CIFAR100 = _cifar(
    "cifar100",
    "CIFAR-100",
    "cifar-100-python",
    "cifar-100-python.tar.gz",
    "eb9058c3a382ffc7106e4002c42a8d85",
    train="16019d7e3df5f24257cddd939b257f8d",
    test="f0ef6b0ae62326f3e7ffdfab6717acfc",
)

_FASHION_MD5 = {  # of the unpacked file, of the download
    "train-images-idx3-ubyte": (
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    ),
    "train-labels-idx1-ubyte": (
        "9018921c3c673c538a1fc5bad174d6f9",
        "25c81989df183df01b3e8a0aad5dffbe",
    ),
    "t10k-images-idx3-ubyte": (
        "8181f5470baa50b63fa0f6fddb340f0a",
        "bef4ecab320f06d8554ea6380940ec79",
    ),
    "t10k-labels-idx1-ubyte": (
        "15d484375f8d13e6eb1aabb0c3f46965",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
}

FASHION_MNIST = Source(
    "fashion_mnist",
    "Fashion-MNIST",
    ("fashion-mnist", "FashionMNIST/raw"),
    {file: f"md5:{md5}" for file, (md5, _) in _FASHION_MD5.items()},
    tuple(
        Download(
            f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{file}.gz",
            f"fashion-mnist/{file}.gz",
            f"md5:{md5}",
        )
        for file, (_, md5) in _FASHION_MD5.items()
    ),
    alternative="install Debian's package dataset-fashion-mnist",
)

WIKITEXT2 = Source(
    "wikitext2",
    "WikiText-2",
    ("wikitext-2",),
    {
        "wiki.train.tokens": (
            "sha256:9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"
        ),
        "wiki.valid.tokens": (
            "sha256:f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"
        ),
        "wiki.test.tokens": (
            "sha256:d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"
        ),
    },
    (
        # the first author's copy, because the original address no longer answers
        Download(
            "https://wikitext.smerity.com/wikitext-2-v1.zip",
            "wikitext-2-v1.zip",
            "md5:542ccefacc6c27f945fb54453812b3cd",
        ),
    ),
    "wikitext-2-v1.zip",
)

SOURCES = {source.name: source for source in (FASHION_MNIST, CIFAR10, CIFAR100, WIKITEXT2)}
