"""From the options of `st3 train` to a protocol: some options choose one, others are arguments of one."""

from collections.abc import Mapping
from typing import Any

from .protocol import PROTOCOLS

__all__ = ["choose_protocol"]


def choose_protocol(name: str | None, options: Mapping[str, Any], faults: list[str]) -> dict[str, Any]:
    """Return the section `protocol` that the options ask for; an empty one leaves the choice to the data set.

    A protocol declares the options that choose it. False declines it (`--no-dense-twin`). All other options are
    arguments of the protocol that is chosen.

    >>> choose_protocol(None, {"cycles": 11, "reset_seed": True}, [])
    {'name': 'lrr', 'arguments': {'reset_seed': True, 'count': 11}}
    """
    arguments, is_declined = dict(options), False
    declared = [(protocol, *pair) for protocol in PROTOCOLS for pair in PROTOCOLS[protocol].options.items()]
    for protocol, option, argument in declared:
        value = arguments.pop(option, None)
        if value is False:
            is_declined = True
        elif value is not None and name not in (None, protocol):
            flag = f"--{option.replace('_', '-')}"
            faults.append(f"{flag} is for protocol {protocol!r}, not for {name!r}: leave out one of them")
        elif value is not None:
            name = protocol
            arguments |= {} if argument is None else {argument: value}
    if name is None and is_declined:
        name = "single"
    return ({} if name is None else {"name": name}) | ({"arguments": arguments} if arguments else {})
