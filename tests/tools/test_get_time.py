"""`get_time`: places, zones, daylight saving time, and what it says where it can't tell."""

from __future__ import annotations

import importlib.resources
import subprocess
import sys
import zoneinfo
from datetime import UTC, datetime

import jsonschema
import pytest

from tools import get_time
from yiemagent.errors import ToolError

NOON = "2026-11-30T06:20:00+00:00"


def tool(instant=NOON):
    """The tool with a clock that stands still."""
    moment = datetime.fromisoformat(instant)
    return get_time.get_tool(clock=lambda: moment)


def text(args, instant=NOON):
    return tool(instant).execute("call_1", args).text


def place(city, instant=NOON):
    """The place and the offset that the tool finds for a city."""
    details = tool(instant).execute("call_1", {"city": city}).details
    return details["place"], details["zone"]


def error(args):
    with pytest.raises(ToolError) as caught:
        tool().execute("call_1", args)
    return str(caught.value)


def test_the_answer_names_place_time_and_offset():
    """The text gives the place, the local time, the zone's short name and its offset; the details give them apart."""
    result = tool().execute("call_1", {"city": "Tokyo"})

    assert result.text == "Current time in Tokyo: 2026-11-30 15:20 (JST, UTC+09:00)"
    assert result.details == {
        "place": "Tokyo",
        "zone": "Asia/Tokyo",
        "iso": "2026-11-30T15:20:00+09:00",
        "utc_offset": "+09:00",
    }


def test_without_a_clock_the_time_is_now():
    """The tool of the file asks the system's clock."""
    before = datetime.now(UTC).replace(microsecond=0)
    details = get_time.get_tool().execute("call_1", {"zone": "UTC"}).details

    assert before <= datetime.fromisoformat(details["iso"])
    assert datetime.fromisoformat(details["iso"]) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("city", "instant", "expected"),
    [
        ("New York", "2026-03-08T06:59:59+00:00", "01:59 (EST, UTC-05:00)"),
        ("New York", "2026-03-08T07:00:00+00:00", "03:00 (EDT, UTC-04:00)"),
        ("New York", "2026-11-01T05:30:00+00:00", "01:30 (EDT, UTC-04:00)"),
        ("New York", "2026-11-01T06:30:00+00:00", "01:30 (EST, UTC-05:00)"),
        ("Berlin", "2026-03-29T00:59:00+00:00", "01:59 (CET, UTC+01:00)"),
        ("Berlin", "2026-03-29T01:00:00+00:00", "03:00 (CEST, UTC+02:00)"),
        ("Sydney", "2026-04-04T15:59:00+00:00", "02:59 (AEDT, UTC+11:00)"),
        ("Sydney", "2026-04-04T16:00:00+00:00", "02:00 (AEST, UTC+10:00)"),
        ("Phoenix", "2026-07-01T12:00:00+00:00", "05:00 (MST, UTC-07:00)"),
        ("Kathmandu", "2026-07-01T12:00:00+00:00", "17:45 (UTC+05:45)"),
        ("Kiritimati", "2026-07-01T12:00:00+00:00", "02:00 (UTC+14:00)"),
        ("Reykjavik", "2026-07-01T12:00:00+00:00", "12:00 (GMT, UTC+00:00)"),
    ],
)
def test_daylight_saving_time_is_right(city, instant, expected):
    """The offset is the one of the moment, on either side of each change of the clocks."""
    assert text({"city": city}, instant).endswith(expected)


@pytest.mark.parametrize(
    ("city", "label", "zone"),
    [
        ("tokyo", "Tokyo", "Asia/Tokyo"),
        (" new  york ", "New York", "America/New_York"),
        ("NYC", "NYC", "America/New_York"),
        ("New York City", "New York City", "America/New_York"),
        ("Bombay", "Bombay", "Asia/Kolkata"),
        ("São Paulo", "São Paulo", "America/Sao_Paulo"),
        ("sao paulo", "São Paulo", "America/Sao_Paulo"),
        ("Zurich", "Zürich", "Europe/Zurich"),
        ("LODZ", "Łódź", "Europe/Warsaw"),
        ("N\u2019Djamena", "N'Djamena", "Africa/Ndjamena"),
        ("Washington, D.C.", "Washington DC", "America/New_York"),
        ("Saint Petersburg", "St. Petersburg", "Europe/Moscow"),
        ("Mexico City", "Mexico City", "America/Mexico_City"),
        ("Tokyo City", "Tokyo", "Asia/Tokyo"),
        ("the Netherlands", "Netherlands", "Europe/Amsterdam"),
        ("City of London", "London", "Europe/London"),
        ("Panama", "Panama", "America/Panama"),
        ("Guatemala City", "Guatemala City", "America/Guatemala"),
        ("Ho Chi Minh", "Ho Chi Minh", "Asia/Ho_Chi_Minh"),
        ("Japan", "Japan", "Asia/Tokyo"),
        ("egypt", "Egypt", "Africa/Cairo"),
        ("Texas", "Texas (most of it)", "America/Chicago"),
        ("Kampala", "Kampala", "Africa/Kampala"),
        ("Ushuaia", "Ushuaia", "America/Argentina/Ushuaia"),
    ],
)
def test_cities_are_found_in_the_ways_people_write_them(city, label, zone):
    """Case, diacritics, dots, blanks and second names of a city make no difference; countries count as places."""
    assert place(city) == (label, zone)


@pytest.mark.parametrize(
    ("city", "label", "zone"),
    [
        ("Paris, France", "Paris", "Europe/Paris"),
        ("Osaka Japan", "Osaka", "Asia/Tokyo"),
        ("London, England, UK", "London", "Europe/London"),
        ("Portland, Oregon", "Portland (Oregon)", "America/Los_Angeles"),
        ("Portland Maine", "Portland (Maine)", "America/New_York"),
        ("Birmingham, UK", "Birmingham", "Europe/London"),
        ("Atlanta, Georgia", "Atlanta", "America/New_York"),
        ("Tbilisi, Georgia", "Tbilisi", "Asia/Tbilisi"),
        ("Honolulu, United States", "Honolulu", "Pacific/Honolulu"),
        ("Cancun, Mexico", "Cancun", "America/Cancun"),
        ("Perth, Australia", "Perth", "Australia/Perth"),
        ("Berlin, Brandenburg", "Berlin", "Europe/Berlin"),
        ("Paris, Ontario", "Paris, Ontario", "America/Toronto"),
        ("Paris, Texas", "Paris, Texas (time of Texas (most of it))", "America/Chicago"),
        ("Hintertupfing, Germany", "Hintertupfing, Germany", "Europe/Berlin"),
    ],
)
def test_a_region_says_which_city_is_meant(city, label, zone):
    """A country or state after the city chooses among cities of one name, and stands in for a place not known."""
    assert place(city) == (label, zone)


def test_an_ambiguous_city_names_its_meanings():
    """A name that is several places in different zones is an error that names each with its zone."""
    said = error({"city": "Portland"})

    assert "ambiguous" in said
    assert "Portland (Oregon) [America/Los_Angeles]" in said
    assert "Portland (Maine) [America/New_York]" in said


@pytest.mark.parametrize("city", ["USA", "U.S.", "America", "Canada", "Nowhere at all, Canada"])
def test_a_country_with_many_zones_is_ambiguous(city):
    """A country that spans zones has no single time, so its name alone is not enough."""
    assert "is ambiguous: " in error({"city": city})


def test_an_unknown_city_answers_with_near_names():
    """A misspelt city is an error that offers the names nearest to it."""
    said = error({"city": "Viena"})

    assert "unknown city 'Viena'; did you mean Vienna" in said
    assert "IANA name" in said


def test_a_city_like_no_other_offers_nothing():
    """Where no name is near, the error offers none and says what else to give."""
    said = error({"city": "Xqzzyx"})

    assert "did you mean" not in said
    assert "try another spelling" in said


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("Asia/Tokyo", "Asia/Tokyo: 2026-11-30 15:20 (JST, UTC+09:00)"),
        ("asia/tokyo", "Asia/Tokyo: 2026-11-30 15:20 (JST, UTC+09:00)"),
        ("America/New York", "America/New_York: 2026-11-30 01:20 (EST, UTC-05:00)"),
        ("UTC", "UTC: 2026-11-30 06:20 (UTC+00:00)"),
        ("Lisbon", "Lisbon: 2026-11-30 06:20 (WET, UTC+00:00)"),
    ],
)
def test_a_zone_is_taken_in_place_of_a_city(zone, expected):
    """An IANA name in any case serves, and so does a city in the wrong argument."""
    assert text({"zone": zone}) == f"Current time in {expected}"


@pytest.mark.parametrize("zone", ["Europe/Lisbonn", "../../etc/passwd", "Mars/Base", "PST"])
def test_an_unknown_zone_is_an_error(zone):
    """A name that is no zone is an error that shows one that is."""
    assert f"unknown time zone {zone!r}" in error({"zone": zone})
    assert "Europe/Lisbon" in error({"zone": zone})


def test_a_misspelt_zone_answers_with_near_names():
    """A zone with a slip in it is answered with the zones nearest to it."""
    assert "did you mean Europe/Lisbon" in error({"zone": "Europe/Lisbonn"})


def test_city_and_zone_may_agree():
    """Both may be given where they have the same time; the city gives the label."""
    assert place("Tokyo") == ("Tokyo", "Asia/Tokyo")
    assert text({"city": "Tokyo", "zone": "Asia/Seoul"}).startswith("Current time in Tokyo: ")


def test_city_and_zone_must_not_contradict():
    """A city and a zone with different times are an error that names both."""
    said = error({"city": "Tokyo", "zone": "Europe/Paris"})

    assert "city 'Tokyo' is in Asia/Tokyo, not in Europe/Paris" in said


def test_a_zone_helps_where_the_city_is_unknown_or_ambiguous():
    """The zone answers for a city that is not known or has several meanings."""
    small = text({"city": "Hintertupfing", "zone": "Europe/Berlin"})
    several = text({"city": "Portland", "zone": "America/Los_Angeles"})

    assert small == "Current time in Hintertupfing: 2026-11-30 07:20 (CET, UTC+01:00)"
    assert several == "Current time in Portland: 2026-11-29 22:20 (PST, UTC-08:00)"


@pytest.mark.parametrize("args", [{}, {"city": " "}, {"city": None, "zone": ""}])
def test_one_of_city_and_zone_is_needed(args):
    """The custom check, and the tool called directly, ask for a city or a zone."""
    said = get_time.validate_required_args(args)

    assert "give 'city'" in said
    assert error(args) == said


@pytest.mark.parametrize("args", [{"city": "Rome"}, {"zone": "UTC"}])
def test_one_of_city_and_zone_is_enough(args):
    """The custom check passes either argument alone."""
    assert get_time.validate_required_args(args) is None


@pytest.mark.parametrize(
    ("given", "prepared"),
    [
        ({"location": "Rome"}, {"city": "Rome"}),
        ({"timezone": "UTC", "city": ""}, {"zone": "UTC"}),
        ({"city": "Rome", "place": "Paris"}, {"city": "Rome"}),
        ({"city": "Rome", "format": "24h"}, {"city": "Rome", "format": "24h"}),
    ],
)
def test_other_names_of_the_arguments_are_taken(given, prepared):
    """Names that models make up for the two arguments are understood, blank ones are dropped, others are kept."""
    before = dict(given)

    assert get_time.prepare_arguments(given) == prepared
    assert given == before


def test_the_tool_may_run_beside_others_and_changes_nothing():
    """The tool is declared parallel and read-only."""
    made = get_time.get_tool()

    assert made.name == "get_time"
    assert made.parallel_tool_execute
    assert made.annotations["readOnlyHint"] is True


def test_the_examples_fit_the_schema_and_the_tool():
    """Each example's arguments pass the schema and are answered, and its words stand in the sentence."""
    made = tool()

    assert len(made.examples) >= 3
    for sentence, args in made.examples:
        jsonschema.validate(args, made.input_schema)
        assert made.execute("call_1", args).details["zone"]
        assert all(value in sentence for value in args.values())


def test_every_zone_of_the_table_exists():
    """Each zone that the tables name is one of the system's, so no entry fails when it is asked for."""
    known = zoneinfo.available_timezones()
    named = {zone for meanings in get_time._index().values() for zone in meanings.values()}
    others = {zone for zones in get_time._OTHER_ZONES.values() for zone in zones.split()}

    assert named - known == set()
    assert others - known == set()


ZONE_FILES_PROBE = """
import sys, zoneinfo
sys.modules["tzdata"] = None  # as where the package is not installed
zoneinfo.reset_tzpath(to=sys.argv[1:])
from tools.get_time import get_tool
for args in ({"city": "Tokyo"}, {"zone": "Asia/Tokyo"}, {"city": "Munich"}, {"city": "Xqzzyx"}):
    try:
        print(get_tool().execute("call_1", args).details["zone"])
    except Exception as error:
        print(error)
"""


def with_zone_files(*folders):
    """What the tool says in a process that finds zone files in these folders alone."""
    done = subprocess.run(
        [sys.executable, "-c", ZONE_FILES_PROBE, *map(str, folders)],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return done.stdout.splitlines()


def test_without_zone_files_the_error_says_what_to_install():
    """Where the system has no zone files, every city and zone is answered with the line that installs them."""
    line = "this system has no time zone files; run: pip install tzdata"

    assert with_zone_files() == [line] * 4


def test_old_zone_files_are_named_as_the_cause(tmp_path):
    """Where the system's files lack the zone of a city, the error names the zone and says how to renew them."""
    with importlib.resources.files("tzdata.zoneinfo.Asia").joinpath("Tokyo").open("rb") as source:
        (tmp_path / "Asia").mkdir()
        (tmp_path / "Asia" / "Tokyo").write_bytes(source.read())
    lines = with_zone_files(tmp_path)

    assert lines[:2] == ["Asia/Tokyo"] * 2
    assert "don't know 'Europe/Berlin'; run: pip install -U tzdata" in lines[2]
    assert "unknown city" in lines[3]
