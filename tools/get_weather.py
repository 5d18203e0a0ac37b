"""The weather now, from Open-Meteo: no key is needed.

The environment variables `YIEMAGENT_GEOCODING_URL` and `YIEMAGENT_WEATHER_URL` name other servers that speak its API.
"""

from __future__ import annotations

import difflib
import os
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.errors import HttpError, ToolError
from yiemagent.net.http import get_json
from yiemagent.tool import AgentTool, AgentToolResult

__all__ = ["execute_tool", "get_tool", "prepare_arguments", "validate_required_args"]

INPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "city": {
            "type": "string",
            "description": "City, with its country or state where needed: 'Lisbon' or 'Portland, Oregon'",
            "x-copy": True,
        },
        "units": {
            "type": "string",
            "enum": ["celsius", "fahrenheit"],
            "default": "celsius",
            "description": "Unit of the temperature",
        },
    },
    "required": ["city"],
}
EXAMPLES = (
    ("What's the weather in Rome?", {"city": "Rome"}),
    ("How hot is it in Boston in Fahrenheit?", {"city": "Boston", "units": "fahrenheit"}),
    ("Is it raining or snowing in Helsinki right now?", {"city": "Helsinki"}),
    ("Do I need a coat in Kuala Lumpur today?", {"city": "Kuala Lumpur"}),
    ("How cold is it in Winnipeg?", {"city": "Winnipeg"}),
)
TIMEOUT_S = 20.0  # for each of the two requests


def get_tool() -> AgentTool:
    """Give the tool."""
    return AgentTool(
        name="get_weather",
        label="Weather",
        description="Tell the current weather and temperature in a city.",
        input_schema=INPUT_SCHEMA,
        execute=execute_tool,
        prepare_arguments=prepare_arguments,
        validate_required_args=validate_required_args,
        parallel_tool_execute=True,
        timeout_s=60.0,
        annotations={"readOnlyHint": True, "openWorldHint": True},
        examples=EXAMPLES,
    )


def prepare_arguments(args: dict[str, Any]) -> dict[str, Any]:
    """Take other names that models use for the arguments and the units."""
    given = dict(args)
    for other, name in {"location": "city", "place": "city", "unit": "units"}.items():
        if other in given:
            value = given.pop(other)
            given.setdefault(name, value)
    units = given.get("units")
    if isinstance(units, str):
        known = {"c": "celsius", "f": "fahrenheit", "metric": "celsius", "imperial": "fahrenheit"}
        plain = units.strip(" °").casefold()
        given["units"] = known.get(plain, plain)
    return given


def validate_required_args(args: dict[str, Any]) -> str | None:
    """Ask for a city that has a letter in it: the schema alone takes any text."""
    if not any(character.isalpha() for character in str(args.get("city") or "")):
        return "give 'city', for example 'Lisbon' or 'Portland, Oregon'"
    return None


def execute_tool(
    tool_call_id: str,  # noqa: ARG001 - part of the contract of every tool
    args: dict[str, Any],
    signal: AbortSignal,
    on_partial_result: Callable[[Any], None],
) -> AgentToolResult:
    """Give the weather at the place.

    Raises:
        ToolError: the place is unknown, or the service can't be reached or gives no usable answer.
        AbortedError: the signal was set.
    """
    if problem := validate_required_args(args):
        raise ToolError(problem)
    units = args.get("units") or "celsius"
    place, label = _locate(args["city"], signal)
    on_partial_result(f"asking for the weather in {label}")
    try:
        reading = _reading(place, units, signal)
    except (KeyError, TypeError, ValueError) as error:
        raise ToolError(f"the weather service gave no usable reading for {label}") from error
    sign, wind_unit = ("°F", "mph") if units == "fahrenheit" else ("°C", "km/h")
    return AgentToolResult(
        f"Weather in {label}: {reading['weather']}, {round(reading['temperature'])} {sign}, "
        f"wind {round(reading['wind_speed'])} {wind_unit}",
        details={"place": label, "units": units, "wind_unit": wind_unit, **reading},
    )


# --- the service -----------------------------------------------------------------------------------------------------


def _ask(variable: str, default: str, params: Mapping[str, Any], signal: AbortSignal) -> Any:
    url = os.environ.get(variable) or default
    try:
        return get_json(url, params=params, signal=signal, timeout_s=TIMEOUT_S)
    except HttpError as error:
        if error.status is None:
            raise ToolError(
                f"no answer from the weather service: {error}; it needs the internet, or {variable} "
                f"with the address of another server of its API"
            ) from error
        raise ToolError(f"the weather service failed: {error}") from error


def _search(name: str, signal: AbortSignal) -> list[dict[str, Any]]:
    """Give the places of a name, the best known first."""
    answer = _ask(
        "YIEMAGENT_GEOCODING_URL",
        "https://geocoding-api.open-meteo.com/v1/search",
        {"name": name, "count": 20, "language": "en", "format": "json"},
        signal,
    )
    places = answer.get("results", []) if isinstance(answer, dict) else None
    if not isinstance(places, list) or not all(_is_place(place) for place in places):
        raise ToolError(f"the weather service gave no usable answer about {name!r}")
    return places


def _is_place(place: Any) -> bool:
    return isinstance(place, dict) and {"name", "latitude", "longitude"} <= place.keys()


def _reading(place: Mapping[str, Any], units: str, signal: AbortSignal) -> dict[str, Any]:
    values = {
        "temperature": "temperature_2m",
        "feels_like": "apparent_temperature",
        "humidity": "relative_humidity_2m",
        "wind_speed": "wind_speed_10m",
        "weather_code": "weather_code",
    }
    answer = _ask(
        "YIEMAGENT_WEATHER_URL",
        "https://api.open-meteo.com/v1/forecast",
        {
            "latitude": place["latitude"],
            "longitude": place["longitude"],
            "current": ",".join(values.values()),
            "temperature_unit": units,
            "wind_speed_unit": "mph" if units == "fahrenheit" else "kmh",
            "timezone": "auto",
        },
        signal,
    )
    current = answer["current"]
    reading = {name: current[key] for name, key in values.items()}
    words = _WEATHER.get(int(reading["weather_code"]), "unknown weather")
    needed = {name: float(reading[name]) for name in ("temperature", "wind_speed")}
    return {**reading, **needed, "weather": words, "local_time": current.get("time")}


# --- places ----------------------------------------------------------------------------------------------------------


def _locate(city: str, signal: AbortSignal) -> tuple[dict[str, Any], str]:
    """Find the place that is meant, and name it: the best known of its name, in the region where one is given."""
    name, *regions = [part.strip() for part in city.split(",") if part.strip()]
    places = _search(name, signal)
    if not places:
        raise ToolError(f"unknown place {city!r}{_did_you_mean(name, signal)}")
    fitting = [place for place in places if all(_is_in(place, region) for region in regions)]
    if not fitting:
        others = "; ".join(_label(place, with_state=True) for place in places[:3])
        raise ToolError(f"found no {name!r} in {', '.join(regions)!r}, but: {others}")
    place = fitting[0]
    state = _folded(str(place.get("admin1") or ""))
    asked_for = any(state in _names(region) for region in regions)
    return place, _label(place, with_state=asked_for)


def _is_in(place: Mapping[str, Any], region: str) -> bool:
    parts = ("country", "country_code", "admin1", "admin2", "admin3", "admin4", "name")
    return bool(_names(region) & {_folded(str(place.get(part, ""))) for part in parts})


def _names(region: str) -> set[str]:
    """Give what a region may be called: "CA" is Canada's code and short for California."""
    plain = _folded(region)
    return {plain, _folded(_SHORT_NAMES.get(plain, ""))} - {""}


def _label(place: Mapping[str, Any], *, with_state: bool) -> str:
    parts = (place["name"], place.get("admin1") if with_state else "", place.get("country"))
    return ", ".join(dict.fromkeys(str(part) for part in parts if part))


def _did_you_mean(name: str, signal: AbortSignal) -> str:
    """Look for names that begin alike, and give the nearest as a question."""
    beginning = name[: max(3, len(name) * 3 // 5)]
    if len(name) <= len(beginning):
        return "; try another spelling or a larger place nearby"
    found = {_folded(place["name"]): place for place in _search(beginning, signal)}
    near = difflib.get_close_matches(_folded(name), found, n=3, cutoff=0.5)
    if not near:
        return "; try another spelling or a larger place nearby"
    return f"; did you mean {' or '.join(_label(found[key], with_state=False) for key in near)}?"


def _folded(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(c for c in letters if not unicodedata.combining(c))
    return " ".join(plain.replace(".", "").split())


# What people write for regions, in the service's own words.
_SHORT = """
usa=United States; us=United States; america=United States; uk=United Kingdom;
uae=United Arab Emirates; great britain=United Kingdom; holland=Netherlands; czech republic=Czechia;
korea=South Korea; al=Alabama; ak=Alaska; az=Arizona; ar=Arkansas; ca=California; co=Colorado; ct=Connecticut;
de=Delaware; fl=Florida; ga=Georgia; hi=Hawaii; id=Idaho; il=Illinois; in=Indiana; ia=Iowa; ks=Kansas;
ky=Kentucky; la=Louisiana; me=Maine; md=Maryland; ma=Massachusetts; mi=Michigan; mn=Minnesota; ms=Mississippi;
mo=Missouri; mt=Montana; ne=Nebraska; nv=Nevada; nh=New Hampshire; nj=New Jersey; nm=New Mexico; ny=New York;
nc=North Carolina; nd=North Dakota; oh=Ohio; ok=Oklahoma; or=Oregon; pa=Pennsylvania; ri=Rhode Island;
sc=South Carolina; sd=South Dakota; tn=Tennessee; tx=Texas; ut=Utah; vt=Vermont; va=Virginia; wa=Washington;
wv=West Virginia; wi=Wisconsin; wy=Wyoming; dc=District of Columbia
"""
_SHORT_NAMES = {
    short.strip(): name for short, _, name in (pair.partition("=") for pair in _SHORT.split(";"))
}

# WMO code table 4677, as Open-Meteo uses it.
_WEATHER = {
    0: "clear sky",
    1: "mainly clear",
    2: "partly cloudy",
    3: "overcast",
    45: "fog",
    48: "freezing fog",
    51: "light drizzle",
    53: "drizzle",
    55: "heavy drizzle",
    56: "light freezing drizzle",
    57: "freezing drizzle",
    61: "light rain",
    63: "rain",
    65: "heavy rain",
    66: "light freezing rain",
    67: "freezing rain",
    71: "light snow",
    73: "snow",
    75: "heavy snow",
    77: "snow grains",
    80: "light rain showers",
    81: "rain showers",
    82: "violent rain showers",
    85: "light snow showers",
    86: "heavy snow showers",
    95: "thunderstorm",
    96: "thunderstorm with light hail",
    99: "thunderstorm with heavy hail",
}
