"""`get_weather` against a local stand-in of Open-Meteo."""

from __future__ import annotations

import socket
import threading
import time

import jsonschema
import pytest

from tests.support.weather_server import WeatherServer, weather_of
from tools import get_weather
from yiemagent.abort import AbortSignal
from yiemagent.errors import AbortedError, ToolError


def place(name, country="United States", code="US", state="", where=(1.0, 2.0)):
    """An answer of the geocoding."""
    return {
        "name": name,
        "latitude": where[0],
        "longitude": where[1],
        "country": country,
        "country_code": code,
        "admin1": state,
    }


PORTLANDS = [
    place("Portland", state="Oregon", where=(45.5, -122.7)),
    place("Portland", state="Maine", where=(43.7, -70.3)),
    place("Portland", "Australia", "AU", "Victoria", where=(-38.3, 141.6)),
]


@pytest.fixture
def serve(monkeypatch):
    """Start a stand-in and point the tool at it; it ends with the test."""
    servers = []

    def start(**options):
        server = WeatherServer(**options)
        servers.append(server.__enter__())
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        return server

    yield start
    for server in servers:
        server.__exit__()


def run(args, signal=None, on_partial_result=None):
    return get_weather.get_tool().execute("call_1", args, signal, on_partial_result)


def error(args):
    with pytest.raises(ToolError) as caught:
        run(args)
    return str(caught.value)


def test_the_answer_names_place_sky_temperature_and_wind(serve):
    """The text gives place, sky, whole degrees and wind; the details give the figures and the code."""
    serve()
    result = run({"city": "Paris"})
    weather = weather_of("Paris")

    assert result.text == "Weather in Paris, France: light rain, 12 °C, wind 7 km/h"
    assert result.details["weather_code"] == weather.code == 61
    assert result.details["temperature"] == 12.0
    assert result.details["humidity"] == weather.humidity
    assert result.details["place"] == "Paris, France"
    assert result.details["local_time"] == "2026-11-30T12:00"


def test_fahrenheit_comes_with_miles(serve):
    """With fahrenheit the service is asked for that unit and for miles an hour, and the text says them."""
    server = serve()
    text = run({"city": "Oslo", "units": "fahrenheit"}).text
    query = server.requests[-1][1]

    assert f"{weather_of('Oslo').fahrenheit} °F" in text
    assert text.endswith(f"wind {round(weather_of('Oslo').wind_kmh / 1.609344)} mph")
    assert (query["temperature_unit"], query["wind_speed_unit"]) == ("fahrenheit", "mph")


@pytest.mark.parametrize("city", ["Oslo", "Kuala Lumpur", "São Paulo", "Xyz", "Nuuk"])
def test_every_sky_of_the_stand_in_is_said_in_its_words(serve, city):
    """The tool's words for a weather code are the stand-in's own, written apart from them."""
    serve()

    assert f": {weather_of(city).sky}, " in run({"city": city}).text


@pytest.mark.parametrize(
    ("city", "label"),
    [
        ("Portland", "Portland, United States"),
        ("Portland, Oregon", "Portland, Oregon, United States"),
        ("Portland, ME", "Portland, Maine, United States"),
        ("Portland,Maine, USA", "Portland, Maine, United States"),
        ("portland, victoria", "Portland, Victoria, Australia"),
        ("Portland, AU", "Portland, Australia"),
        ("Portland,", "Portland, United States"),
    ],
)
def test_a_region_says_which_place_is_meant(serve, city, label):
    """A state or country after the city, in words or short, chooses among places of one name; else the first counts."""
    serve(places={"portland": PORTLANDS})

    assert run({"city": city}).text.startswith(f"Weather in {label}: ")


def test_a_region_without_such_a_place_names_those_that_are(serve):
    """A city that is not in the region asked for is an error that says where it is."""
    serve(places={"portland": PORTLANDS})
    said = error({"city": "Portland, France"})

    assert "found no 'Portland' in 'France'" in said
    assert "Portland, Oregon, United States; Portland, Maine, United States" in said


def test_a_place_without_a_country_is_named_alone(serve):
    """A place of which the service gives the name only is shown with that."""
    serve(places={"atlantis": [{"name": "Atlantis", "latitude": 1.0, "longitude": 2.0}]})

    assert run({"city": "Atlantis"}).text.startswith("Weather in Atlantis: ")


def test_an_unknown_place_answers_with_near_names(serve):
    """A name that is not found is looked for by its beginning, and the nearest names are offered."""
    near = [place("Vienna", "Austria", "AT"), place("Vientiane", "Laos", "LA"), place("Vie")]
    serve(unknown=["Vienma"], places={"vie": near})

    assert error({"city": "Vienma"}).startswith(
        "unknown place 'Vienma'; did you mean Vienna, Austria"
    )


@pytest.mark.parametrize("city", ["Xqzzyxq", "Xqz"])
def test_a_place_like_no_other_offers_nothing(serve, city):
    """Where no name is near, the error says to try another spelling."""
    serve(unknown=["Xqzzyxq", "Xqz", "Xqzz"], places={"xqzz": [place("Lima")]})

    assert error({"city": city}) == (
        f"unknown place {city!r}; try another spelling or a larger place nearby"
    )


def test_without_network_the_error_says_so(monkeypatch):
    """Where nobody listens, the error names the server that does not answer and how to name another."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("YIEMAGENT_GEOCODING_URL", url)
    said = error({"city": "Rome"})

    assert "no answer from the weather service: no connection to http://127.0.0.1" in said
    assert "YIEMAGENT_GEOCODING_URL" in said


@pytest.mark.parametrize("path", ["/v1/search", "/v1/forecast"])
def test_a_refusal_is_passed_on_with_its_status(serve, path):
    """What the service answers to a request it refuses stands in the error."""
    serve(answers={path: (429, {"error": True, "reason": "Daily limit exceeded"})})
    said = error({"city": "Rome"})

    assert "the weather service failed" in said
    assert "429" in said
    assert "Daily limit exceeded" in said


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/search", []),
        ("/v1/search", {"results": 5}),
        ("/v1/search", {"results": [{"name": "Rome"}]}),
        ("/v1/search", {"results": ["Rome"]}),
        ("/v1/forecast", []),
        ("/v1/forecast", {"current": {}}),
        ("/v1/forecast", {"current": None}),
        (
            "/v1/forecast",
            {
                "current": {
                    "temperature_2m": None,
                    "apparent_temperature": 1,
                    "relative_humidity_2m": 1,
                    "wind_speed_10m": 1,
                    "weather_code": 1,
                }
            },
        ),
    ],
)
def test_a_malformed_answer_is_an_error(serve, path, body):
    """An answer without what is needed is a plain error, whatever is wrong with it."""
    serve(answers={path: (200, body)})

    assert "the weather service gave no usable" in error({"city": "Rome"})


def test_an_answer_that_is_no_json_is_an_error(serve):
    """A page in place of JSON, as captive networks send, is a plain error."""
    serve(answers={"/v1/search": (200, b"<html>log in</html>")})

    assert "no answer from the weather service" in error({"city": "Rome"})


def test_an_unknown_weather_code_is_said_to_be_one(serve):
    """A code that no table has leaves the temperature readable."""
    current = dict.fromkeys(
        ("temperature_2m", "apparent_temperature", "relative_humidity_2m", "wind_speed_10m"), 7.4
    )
    serve(answers={"/v1/forecast": (200, {"current": {**current, "weather_code": 42}})})

    assert ": unknown weather, 7 °C, wind 7 km/h" in run({"city": "Rome"}).text


@pytest.mark.parametrize("path", ["/v1/search", "/v1/forecast"])
def test_an_abort_ends_the_request(serve, path):
    """A signal that is set while the service is silent ends the call at once."""
    server = serve(holds=[path])
    signal = AbortSignal()
    raised = []

    def call():
        try:
            run({"city": "Rome"}, signal)
        except AbortedError as caught:
            raised.append(caught)

    thread = threading.Thread(target=call)
    thread.start()
    assert server.held.wait(10)
    started = time.monotonic()
    signal.abort("enough")
    thread.join(5)

    assert time.monotonic() - started < 1
    assert "enough" in str(raised[0])


def test_progress_is_told(serve):
    """Between the two requests the tool tells which place it asks about."""
    serve()
    told = []
    run({"city": "Rome"}, None, told.append)

    assert told == ["asking for the weather in Rome, Atlantis"]


@pytest.mark.parametrize("args", [{}, {"city": ""}, {"city": "123"}, {"city": None}])
def test_a_city_with_letters_is_needed(args):
    """The custom check, and the tool called directly, ask for a city."""
    said = get_weather.validate_required_args(args)

    assert "give 'city'" in said
    assert error(args) == said


def test_a_city_is_enough():
    """The custom check passes a city alone."""
    assert get_weather.validate_required_args({"city": "Rome"}) is None


@pytest.mark.parametrize(
    ("given", "prepared"),
    [
        ({"location": "Rome"}, {"city": "Rome"}),
        ({"city": "Rome", "place": "Paris"}, {"city": "Rome"}),
        ({"city": "Rome", "unit": "F"}, {"city": "Rome", "units": "fahrenheit"}),
        ({"units": "°C"}, {"units": "celsius"}),
        ({"units": "Imperial"}, {"units": "fahrenheit"}),
        ({"units": "Celsius"}, {"units": "celsius"}),
        ({"units": "kelvin"}, {"units": "kelvin"}),
        ({"units": 5}, {"units": 5}),
    ],
)
def test_other_names_of_arguments_and_units_are_taken(given, prepared):
    """Names that models make up are understood; what is wrong stays as it is, for the schema to refuse."""
    before = dict(given)

    assert get_weather.prepare_arguments(given) == prepared
    assert given == before


def test_the_tool_may_run_beside_others_and_changes_nothing():
    """The tool is declared parallel and read-only, with a time limit of its own."""
    made = get_weather.get_tool()

    assert made.name == "get_weather"
    assert made.parallel_tool_execute
    assert made.timeout_s == 60.0
    assert made.annotations["readOnlyHint"] is True


def test_the_examples_fit_the_schema(serve):
    """Each example's arguments pass the schema and are answered, and its city stands in the sentence."""
    serve()
    made = get_weather.get_tool()

    assert len(made.examples) >= 3
    for sentence, args in made.examples:
        jsonschema.validate(args, made.input_schema)
        assert made.execute("call_1", args).text.startswith(f"Weather in {args['city']}")
        assert args["city"] in sentence
