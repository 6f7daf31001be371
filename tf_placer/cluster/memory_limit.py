"""Less memory of a device than it has: for what else runs there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tf_placer import arguments
from tf_placer.cluster.device import Device, named_parts
from tf_placer.errors import InputError
from tf_placer.quantities import parse_size, size

REMEDY = 'give {"GPU:0": "10GB"}, device -> size'


def limits_by_device(name: str, value: object) -> dict[str, int]:
    """``value`` as a dict from device name, whole or in part, to bytes.

    Args:
      name: of the argument, for messages.
      value: a mapping from device to bytes, or to a text such as ``"10GB"`` or ``"9.5 GiB"``.

    Raises:
      InputError: it is no such mapping, a device is no device name, or a size no size.
    """
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is {arguments.shown(value)}; {REMEDY}")
    limits = {}
    for device, limit in value.items():
        if not isinstance(device, str) or not device:
            raise InputError(f"{name} has the device {arguments.shown(device)}; {REMEDY}")
        try:
            named_parts(device)
            limits[device] = (
                parse_size(limit)
                if isinstance(limit, str)
                else arguments.whole_number(f"the limit of {device}", limit, least=1)
            )
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    return limits


def limits_of_texts(name: str, texts: list[str]) -> dict[str, int]:
    """As ``limits_by_device`` of texts like ``"GPU:0=10GB"``.

    Raises:
      InputError: one is not of this form, or a device has two limits.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        device, equals, limit = text.rpartition("=")
        if not (device and equals and limit):
            raise InputError(f"{name}={text}: it is not of the form 'device=size'; write it like GPU:0=10GB")
        if device in pairs:
            raise InputError(f"{name}={text}: {device} has a limit already, {pairs[device]}; keep one")
        pairs[device] = limit
    return limits_by_device(name, pairs)


def limited(devices: tuple[Device, ...], limits: Mapping[str, int], name: str) -> tuple[Device, ...]:
    """The devices with no more memory than their limits.

    Args:
      devices: of a cluster.
      limits: as ``limits_by_device`` gives them.
      name: of the argument, for messages.

    Raises:
      InputError: a limit is for no device, for several, or above what the device has.
    """
    said: dict[int, str] = {}
    for text, limit in limits.items():
        d = _position(devices, text, name)
        if said.setdefault(d, text) != text:
            raise InputError(f"{name}: {said[d]} and {text} are the same device; keep one")
        if limit > devices[d].memory_bytes:
            raise InputError(
                f"{name}: {text} has {devices[d].memory_bytes} bytes ({size(devices[d].memory_bytes)}), and {limit} "
                "is more; give no more than it has"
            )
    return tuple(
        dataclasses.replace(device, memory_bytes=limits[said[d]]) if d in said else device
        for d, device in enumerate(devices)
    )


def _position(devices: tuple[Device, ...], text: str, name: str) -> int:
    """Of the one device that has every part of its name that the text has."""
    wanted = named_parts(text).items()
    fitting = [d for d, device in enumerate(devices) if wanted <= named_parts(device.name).items()]
    if len(fitting) != 1:
        which = "no device" if not fitting else "more than one device"
        names = ", ".join(device.name for device in devices)
        raise InputError(f"{name}: {text} is {which} of the cluster; give one of {names}")
    return fitting[0]
