"""A local stand-in of Open-Meteo: geocoding and forecast for any place, the same weather for the same name.

`weather_of(city)` says what the server will answer, so a test knows the right answer without asking.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import threading
import unicodedata
import urllib.parse

import attrs

__all__ = ["Weather", "WeatherServer", "weather_of"]

# WMO codes that the stand-in gives, with the words that a tool is expected to say for them.
SKIES = {
    0: "clear sky",
    2: "partly cloudy",
    3: "overcast",
    45: "fog",
    61: "light rain",
    63: "rain",
    71: "light snow",
    80: "light rain showers",
    95: "thunderstorm",
}
COUNTRIES = {
    "amsterdam": ("NL", "Netherlands"),
    "berlin": ("DE", "Germany"),
    "chicago": ("US", "United States"),
    "london": ("GB", "United Kingdom"),
    "mexico city": ("MX", "Mexico"),
    "moscow": ("RU", "Russia"),
    "paris": ("FR", "France"),
    "san francisco": ("US", "United States"),
    "singapore": ("SG", "Singapore"),
}


@attrs.frozen
class Weather:
    """What the stand-in says of a place; the two units give whole degrees of the same reading."""

    city: str
    country_code: str
    country: str
    celsius: int
    code: int
    wind_kmh: int
    humidity: int

    @property
    def sky(self):
        """The weather code in words."""
        return SKIES[self.code]

    @property
    def fahrenheit(self):
        """The temperature in whole degrees Fahrenheit."""
        return round(self.celsius * 9 / 5 + 32)

    def temperature(self, units="celsius"):
        """The temperature in whole degrees of the unit."""
        return self.fahrenheit if units == "fahrenheit" else self.celsius


def _folded(name):
    letters = unicodedata.normalize("NFKD", name)
    return "".join(c for c in letters if not unicodedata.combining(c)).casefold().strip()


def weather_of(city):
    """What the stand-in answers for a city: the same for every spelling of its name."""
    seed = hashlib.sha256(_folded(city).encode()).digest()
    code, country = COUNTRIES.get(_folded(city), ("XA", "Atlantis"))
    codes = sorted(SKIES)
    return Weather(
        city=city,
        country_code=code,
        country=country,
        celsius=seed[0] % 46 - 10,
        code=codes[seed[1] % len(codes)],
        wind_kmh=5 + seed[2] % 40,
        humidity=30 + seed[3] % 60,
    )


class WeatherServer:
    """Open-Meteo's two endpoints on a free port of 127.0.0.1, for the length of a `with`.

    Args:
        unknown: names that the geocoding does not know.
        places: answers of the geocoding by folded name, in place of the made-up one.
        answers: bodies by path ("/v1/search", "/v1/forecast") in place of the real answer, with their status.
        holds: paths that are not answered before the server ends.
    """

    def __init__(self, unknown=(), places=None, answers=None, holds=()):
        self.unknown = {_folded(name) for name in unknown}
        self.places = places or {}
        self.answers = answers or {}
        self.holds = set(holds)
        self.requests = []
        self.held = threading.Event()  # set with the first request that is held
        self._ending = threading.Event()
        self._cities = {}
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self):
        """The environment variables that point get_weather at this server."""
        return {
            "YIEMAGENT_WEATHER_URL": f"{self.url}/v1/forecast",
            "YIEMAGENT_GEOCODING_URL": f"{self.url}/v1/search",
        }

    def __enter__(self):
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_exc):
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path, query):
        """Give status and body for one request."""
        if path in self.answers:
            return self.answers[path]
        if path == "/v1/search":
            return 200, self._search(query)
        if path == "/v1/forecast":
            return self._forecast(query)
        return 404, {"error": True, "reason": "Not Found"}

    def _search(self, query):
        name = query.get("name", "")
        if _folded(name) in self.places:
            found = self.places[_folded(name)]
        elif len(name) < 2 or _folded(name) in self.unknown:
            found = []
        else:
            found = [self._place(name)]
        for place in found:
            self._cities[f"{place['latitude']:.5f},{place['longitude']:.5f}"] = place["name"]
        body = {"generationtime_ms": 0.5}
        return body | {"results": found[: int(query.get("count", "10"))]} if found else body

    def _place(self, name):
        weather, seed = weather_of(name), hashlib.sha256(_folded(name).encode()).digest()
        return {
            "id": int.from_bytes(seed[:3], "big"),
            "name": name,
            "latitude": round(seed[4] / 2 - 60 + seed[5] / 1000, 5),
            "longitude": round(seed[6] - 120 + seed[7] / 1000, 5),
            "elevation": 38.0,
            "feature_code": "PPLC",
            "country_code": weather.country_code,
            "country": weather.country,
            "admin1": f"Province of {name}",
            "timezone": "UTC",
            "population": 1_000_000,
        }

    def _forecast(self, query):
        city = self._cities.get(f"{float(query['latitude']):.5f},{float(query['longitude']):.5f}")
        if city is None:
            return 400, {"error": True, "reason": "Latitude must be in range of -90 to 90°."}
        weather, units = weather_of(city), query.get("temperature_unit", "celsius")
        wind = query.get("wind_speed_unit", "kmh")
        current = {
            "time": "2026-11-30T12:00",
            "interval": 900,
            "temperature_2m": float(weather.temperature(units)),
            "relative_humidity_2m": weather.humidity,
            "apparent_temperature": float(weather.temperature(units)),
            "weather_code": weather.code,
            "wind_speed_10m": weather.wind_kmh / (1.609344 if wind == "mph" else 1),
        }
        sign = "°F" if units == "fahrenheit" else "°C"
        return 200, {
            "latitude": float(query["latitude"]),
            "longitude": float(query["longitude"]),
            "timezone": "GMT",
            "utc_offset_seconds": 0,
            "current_units": {
                "temperature_2m": sign,
                "wind_speed_10m": wind.replace("kmh", "km/h"),
            },
            "current": {key: current[key] for key in ["time", "interval", *_asked(query)]},
        }

    def _handler(outer):  # noqa: N805 - the handler inside has a self of its own
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                url = urllib.parse.urlsplit(self.path)
                query = dict(urllib.parse.parse_qsl(url.query))
                outer.requests.append((url.path, query))
                if url.path in outer.holds:
                    outer.held.set()
                    outer._ending.wait()
                    return
                status, body = outer.answer(url.path, query)
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                with contextlib.suppress(ConnectionError):  # a client that gave up
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json; charset=utf-8")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, format, *args):  # noqa: A002 - the name is the base class's
                """Say nothing."""

        return Handler


def _asked(query):
    return [name for name in query.get("current", "").split(",") if name]
