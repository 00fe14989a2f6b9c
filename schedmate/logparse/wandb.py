"""The binary file of a W&B run (`run-ID.wandb`): the whole run, also where it was offline.

It is a log of records as LevelDB's (https://github.com/google/leveldb/blob/main/doc/log_format.md):
blocks of 32 KiB with fragments of a header (CRC-32, length, type) and data. Its own header is
`:W&B`, a number and a version. Each record is a protobuf message, read by Google's library (the
extra `wandb`); `wandb.yaml` describes what is read of it. W&B's own package no longer reads these
files in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from struct import Struct
from typing import IO, Any
from zlib import crc32

from schedmate.base.data import load
from schedmate.base.errors import InputError, require
from schedmate.base.reading import open_binary, parse_json

_MAGIC = b":W&B\xe1\xbe\x00"
_BLOCK = 32 << 10
_HEADER = Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_LONGEST = 64 << 20
"""Bytes of one record; a step with more holds no numbers of a curve."""


def wandb_file(folder: Path) -> Path | None:
    """The binary file of the run in this folder, None where there is none."""
    return next(iter(sorted(folder.glob("run-*.wandb"))), None)


def has_protobuf() -> bool:
    """Whether such a file can be read here."""
    return find_spec("google") is not None and find_spec("google.protobuf") is not None


def read_records(path: Path) -> Iterator[Any]:
    """The records of a run, in order, as far as they were written.

    Raises `InputError` where the file is damaged or no file of W&B, and `MissingExtraError`.
    """
    require(f"reading {path}", "wandb", "google.protobuf")
    from google.protobuf.message import DecodeError

    record = _record()
    with open_binary(path) as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise InputError(f"{path} is not a run of W&B that can be read; name its output.log.")
        for data in _framed(stream, path):
            try:
                yield record.FromString(data)
            except DecodeError as error:
                raise InputError(f"{path} holds a damaged record: {error}.") from None


def _framed(stream: IO[bytes], path: Path) -> Iterator[bytes]:
    at, whole = len(_MAGIC), b""
    while True:
        if _BLOCK - at % _BLOCK < _HEADER.size:
            at += len(stream.read(_BLOCK - at % _BLOCK))
        header = stream.read(_HEADER.size)
        if len(header) < _HEADER.size or not any(header):
            return  # its end, or what a crash of the machine left
        checksum, length, kind = _HEADER.unpack(header)
        data = stream.read(length)
        if len(data) < length:
            return  # it is being written
        if crc32(header[-1:] + data) != checksum or kind > _LAST or len(whole) > _LONGEST:
            raise InputError(f"{path} is damaged at byte {at:,}; name the run's output.log.")
        at += _HEADER.size + length
        whole = data if kind in (_FULL, _FIRST) else whole + data
        if kind in (_FULL, _LAST):
            yield whole


@cache
def _record() -> Any:
    from google.protobuf import descriptor_pb2, json_format, timestamp_pb2
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    described = json_format.ParseDict(
        load("logparse/wandb.yaml"), descriptor_pb2.FileDescriptorProto()
    )
    pool.Add(described)
    return GetMessageClass(pool.FindMessageTypeByName("wandb.Record"))


def item_values(items: Any, path: Path) -> dict[str, Any]:
    """The values of a record's items, by their names joined with dots."""
    return {
        ".".join(item.nested_key) or item.key: parse_json(item.value_json, path)
        for item in items
        if item.value_json
    }
