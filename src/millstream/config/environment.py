"""Settings from variables: `MILLSTREAM_MQTT__PORT`, or `MILLSTREAM_MQTT_PORT` where that is unambiguous.

A variable that starts like ours and names no key is refused: a misspelt one must not be ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from millstream.config.faults import Fault, Origin, show_value
from millstream.config.keys import ANY_NAME, ENVIRONMENT_PREFIX, KeyPath, all_keys, nearest, to_known

# Ours, but not settings of the broker.
OTHER_VARIABLES: Final = frozenset(
    {
        "MILLSTREAM_CONFIG",  # the configuration file
        "MILLSTREAM_PASSWORD",  # password of `millstream pub`, `sub` and `bench`
        "MILLSTREAM_NO_COMPILE",  # read when the package is built
    }
)
# The value of an unknown variable is shown, unless its name says that it should not be.
_SECRET_NAME: Final = re.compile(r"PASS|SECRET|TOKEN|KEY|CREDENTIAL")
# Kubernetes puts these into every pod beside a service called "millstream".
_SERVICE_LINK: Final = re.compile(r"MILLSTREAM_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_TCP(_\w+)?)")


@cache
def _paths_by_flat_name() -> dict[str, list[KeyPath]]:
    paths: dict[str, list[KeyPath]] = {}
    for key in all_keys():
        paths.setdefault("_".join(key.path), []).append(key.path)
    return paths


def find_path(variable: str) -> KeyPath | None:
    """The key a variable names, None if it names none."""
    name = variable[len(ENVIRONMENT_PREFIX) :].lower()
    parts = tuple(name.split("__"))
    known = to_known(parts)
    if known != parts:
        return parts if any(key.path == known for key in all_keys()) else None
    paths = _paths_by_flat_name().get("_".join(parts), [])
    exact = [path for path in paths if path == parts]
    found = exact or paths
    return found[0] if len(found) == 1 and ANY_NAME not in found[0] else None


def is_setting(variable: str, value: str) -> bool:
    if not variable.startswith(ENVIRONMENT_PREFIX) or variable in OTHER_VARIABLES:
        return False
    if _SERVICE_LINK.fullmatch(variable) or (variable == "MILLSTREAM_PORT" and value.startswith("tcp://")):
        return False
    # Names of the test and build tools of this project; no section is called so.
    return not variable.startswith(("MILLSTREAM_TEST_", "MILLSTREAM_BENCH_"))


def read_environment(environment: Mapping[str, str]) -> tuple[dict[KeyPath, tuple[str, Origin]], list[Fault]]:
    settings: dict[KeyPath, tuple[str, Origin]] = {}
    faults: list[Fault] = []
    for variable in sorted(environment):
        value = environment[variable]
        if not is_setting(variable, value):
            continue
        origin = Origin(f"variable {variable}")
        path = find_path(variable)
        if path is None:
            suggestion = nearest(variable, [key.variable for key in all_keys()])
            shown = None if _SECRET_NAME.search(variable) else show_value(value)
            faults.append(Fault(origin, "", shown, "names no key", suggestion))
        elif path in settings:
            text = f"is set a second time; the first is {settings[path][1].text}"
            faults.append(Fault(origin, ".".join(path), show_value(value), text))
        else:
            settings[path] = (value, origin)
    return settings, faults
