"""The current time in a city or time zone, daylight saving time included."""

from __future__ import annotations

import difflib
import functools
import re
import unicodedata
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from yiemagent.abort import AbortSignal
from yiemagent.errors import ToolError
from yiemagent.tool import AgentTool, AgentToolResult

__all__ = ["execute_tool", "get_tool", "prepare_arguments", "validate_required_args"]

INPUT_SCHEMA = {
    "type": "object",
    "properties": {
        "city": {
            "type": "string",
            "description": "City or country, for example 'Lisbon' or 'Portland, Oregon'",
            "x-copy": True,
        },
        "zone": {
            "type": "string",
            "description": "IANA time zone, for example 'Europe/Lisbon', in place of a city",
        },
    },
}
EXAMPLES = (
    ("What time is it in Lisbon?", {"city": "Lisbon"}),
    ("Can you tell me the time in Cape Town?", {"city": "Cape Town"}),
    ("My brother is in Oslo. How late is it there?", {"city": "Oslo"}),
    ("Current local time in Hong Kong, please.", {"city": "Hong Kong"}),
)


def get_tool(*, clock: Callable[[], datetime] | None = None) -> AgentTool:
    """Give the tool.

    Args:
        clock: gives the present moment with its time zone; None asks the system.
    """
    return AgentTool(
        name="get_time",
        label="Current Time",
        description="Tell the current local time in a city, country or time zone.",
        input_schema=INPUT_SCHEMA,
        execute=functools.partial(execute_tool, clock=clock or _now),
        prepare_arguments=prepare_arguments,
        validate_required_args=validate_required_args,
        parallel_tool_execute=True,
        annotations={"readOnlyHint": True, "openWorldHint": False},
        examples=EXAMPLES,
    )


def prepare_arguments(args: dict[str, Any]) -> dict[str, Any]:
    """Take other names that models use for the two arguments, and drop blank ones."""
    names = {"location": "city", "place": "city", "timezone": "zone", "time_zone": "zone"}
    given = {name: value for name, value in args.items() if not _is_blank(value)}
    renamed = {names[name]: given.pop(name) for name in names if name in given}
    return renamed | given


def validate_required_args(args: dict[str, Any]) -> str | None:
    """Ask for a city or a zone: the schema alone lets both be absent."""
    if all(_is_blank(args.get(name)) for name in ("city", "zone")):
        return "give 'city' (for example 'Lisbon') or 'zone' (for example 'Europe/Lisbon')"
    return None


def execute_tool(
    tool_call_id: str,  # noqa: ARG001 - part of the contract of every tool
    args: dict[str, Any],
    signal: AbortSignal,  # noqa: ARG001 - there is nothing to wait for
    on_partial_result: Callable[[Any], None],  # noqa: ARG001 - there is no progress to tell of
    *,
    clock: Callable[[], datetime],
) -> AgentToolResult:
    """Give the time at the place.

    Raises:
        ToolError: the place is unknown, ambiguous or contradicts the zone, or the system knows no zones.
    """
    if problem := validate_required_args(args):
        raise ToolError(problem)
    label, zone = _place(args.get("city"), args.get("zone"), clock())
    moment = clock().astimezone(_zone_info(zone))
    offset = moment.isoformat()[-6:]
    name = moment.tzname() or ""
    shown = f"{name}, UTC{offset}" if name.isalpha() and name != "UTC" else f"UTC{offset}"
    return AgentToolResult(
        f"Current time in {label}: {moment:%Y-%m-%d %H:%M} ({shown})",
        details={
            "place": label,
            "zone": zone,
            "iso": moment.isoformat(timespec="seconds"),
            "utc_offset": offset,
        },
    )


def _now() -> datetime:
    return datetime.now(UTC)


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _place(city: str | None, zone: str | None, now: datetime) -> tuple[str, str]:
    """Give the place's label and its zone."""
    named = _named_zone(zone) if zone else None
    if city is None:
        assert named is not None
        return named
    try:
        label, of_city = _city(city)
    except ToolError:
        if named is None:
            raise
        return city.strip(), named[1]  # a small place, for which the caller knows the zone
    if named is not None:
        ours, theirs = (now.astimezone(_zone_info(z)).utcoffset() for z in (of_city, named[1]))
        if ours != theirs:
            raise ToolError(
                f"city {city!r} is in {of_city}, not in {named[1]}; give only the one you mean"
            )
    return label, of_city


# --- zones -----------------------------------------------------------------------------------------------------------


def _zone_info(name: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except zoneinfo.ZoneInfoNotFoundError as error:
        old = f"the zone files of this system don't know {name!r}; run: pip install -U tzdata"
        raise ToolError(old if _zones() else _NO_ZONES) from error


_NO_ZONES = "this system has no time zone files; run: pip install tzdata"


@functools.cache
def _zones() -> dict[str, str]:
    """Every zone of the system, by its name in lower case."""
    return {name.casefold(): name for name in sorted(zoneinfo.available_timezones())}


def _named_zone(zone: str) -> tuple[str, str]:
    """Give label and zone for what stands in `zone`: an IANA name in any case, or a place."""
    zones = _zones()
    if not zones:
        raise ToolError(_NO_ZONES)
    key = zone.strip().replace(" ", "_").casefold()
    if key in zones:
        return zones[key], zones[key]
    if "/" not in zone and (found := _found(zone)):
        return _only(zone, found)
    near = [zones[name] for name in difflib.get_close_matches(key, zones, n=3, cutoff=0.6)]
    raise ToolError(
        f"unknown time zone {zone!r}{_did_you_mean(near)}; use an IANA name such as 'Europe/Lisbon'"
    )


# --- places ----------------------------------------------------------------------------------------------------------

_SPECIAL = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "\u0131": "i", "æ": "ae", "œ": "oe", "&": " and "}
    | dict.fromkeys("'`\u2018\u2019\u02bb", "")  # apostrophes of all kinds
)


def _folded(text: str) -> str:
    """Reduce a name to what people agree on: no case, diacritics, dots or hyphens; 'Saint' is 'st', 'D.C.' is 'dc'."""
    letters = unicodedata.normalize("NFKD", text.casefold().translate(_SPECIAL))
    plain = "".join(c for c in letters if not unicodedata.combining(c))
    words = re.sub(r"[\W_]+", " ", plain).replace("saint ", "st ").strip()
    return re.sub(r"\b(\w) (?=\w\b)", r"\1", words)


def _key(name: str) -> str:
    return _ALIASES.get(_folded(name), _folded(name))


@functools.cache
def _index() -> dict[str, dict[str, str]]:
    """Zones of every known name: folded name to {label: zone}, one label for most."""
    index: dict[str, dict[str, str]] = {}
    for line in PLACES.replace("\n", " ").split("; "):
        zone, _, places = line.strip().partition(": ")
        for place in places.split(", "):
            bare = place.partition(" (")[0]
            index.setdefault(_folded(bare), {})[place] = zone
            if bare != place:
                index[_folded(place)] = {place: zone}
    for zone in _zones().values():
        if regional := _REGIONS.fullmatch(zone):  # not "US/Eastern", "Etc/GMT+1" and the like
            label = regional[1].replace("_", " ")
            index.setdefault(_folded(label), {label: zone})
    return index


_REGIONS = re.compile(
    r"(?:Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Europe|Indian|Pacific)/(?:.*/)?(.*)"
)
_ALIASES = dict.fromkeys(("united states", "united states of america", "us", "america"), "usa")


def _city(city: str) -> tuple[str, str]:
    """Give a city's label and zone."""
    if found := _found(city):
        return _only(city, found)
    if not _zones():
        raise ToolError(_NO_ZONES)
    near = difflib.get_close_matches(_folded(city), _index(), n=4, cutoff=0.7)
    labels = dict.fromkeys(label for name in near for label in _index()[name])
    raise ToolError(
        f"unknown city {city!r}{_did_you_mean(list(labels)[:4])}; try another spelling, a larger "
        f"city in the same time zone, or 'zone' with an IANA name such as 'Europe/Lisbon'"
    )


def _only(asked: str, found: dict[str, str]) -> tuple[str, str]:
    if len(set(found.values())) > 1:
        choices = " or ".join(f"{label} [{zone}]" for label, zone in found.items())
        raise ToolError(
            f"{asked!r} is ambiguous: {choices}; name one of them, or give its zone alone"
        )
    return next(iter(found.items()))


def _found(city: str) -> dict[str, str]:
    """Give what a text may mean, {label: zone}; empty where nothing is known."""
    if found := _named(city):
        return found
    head, comma, rest = city.partition(",")
    if comma:
        region = rest.rpartition(",")[2]
        return _inside(head, region) or _somewhere_in(city, region) or _named(head)
    words = city.split()
    splits = ((words[:cut], words[cut:]) for cut in range(len(words) - 1, 0, -1))
    return next(filter(None, (_inside(" ".join(a), " ".join(b)) for a, b in splits)), {})


def _named(name: str) -> dict[str, str]:
    index, key = _index(), _key(name)
    variants = (key, key.removeprefix("the "), key.removeprefix("city of "), f"{key} city")
    known = (index[name] for name in (*variants, key.removesuffix(" city")) if name in index)
    return next(known, {})


def _inside(place: str, region: str) -> dict[str, str]:
    """Give what `place` means where `region` tells which one: "Paris, France", "Honolulu USA"."""
    zones = {*_named(region).values(), *_OTHER_ZONES.get(_key(region), "").split()}
    return {
        place.strip() if "(" in label else label: zone
        for label, zone in _named(place).items()
        if zone in zones
    }


def _somewhere_in(city: str, region: str) -> dict[str, str]:
    """Give the time of a region that we know for a place in it that we don't: "Paris, Ontario"."""
    around = _named(region)
    if len(set(around.values())) != 1:
        return around
    label, zone = next(iter(around.items()))
    where = city.strip()
    return {f"{where} (time of {label})" if "(" in label else where: zone}


def _did_you_mean(names: list[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""


# Zones in which only a smaller part of a region lives.
_OTHER_ZONES = {
    "argentina": "America/Argentina/Cordoba America/Argentina/Mendoza America/Argentina/Salta "
    "America/Argentina/Ushuaia America/Argentina/Tucuman",
    "australia": "Australia/Hobart Australia/Melbourne",
    "brazil": "America/Manaus America/Recife America/Bahia America/Fortaleza America/Belem America/Cuiaba "
    "America/Campo_Grande America/Porto_Velho America/Rio_Branco",
    "canada": "America/Whitehorse America/Yellowknife America/Iqaluit America/Moncton",
    "chile": "America/Punta_Arenas Pacific/Easter",
    "ecuador": "Pacific/Galapagos",
    "florida": "America/Chicago",
    "malaysia": "Asia/Kuching",
    "mexico": "America/Cancun America/Tijuana America/Hermosillo America/Mazatlan America/Chihuahua "
    "America/Ciudad_Juarez America/Merida America/Monterrey",
    "portugal": "Atlantic/Azores Atlantic/Madeira",
    "russia": "Asia/Omsk Asia/Krasnoyarsk Asia/Irkutsk Asia/Yakutsk Asia/Kamchatka Asia/Tomsk Asia/Magadan "
    "Asia/Sakhalin Europe/Kaliningrad Europe/Samara Europe/Volgograd Europe/Saratov",
    "spain": "Atlantic/Canary Africa/Ceuta",
    "texas": "America/Denver",
    "usa": "America/Anchorage America/Boise America/Detroit America/Indiana/Indianapolis "
    "America/Kentucky/Louisville America/Phoenix Pacific/Honolulu",
}

# Names beyond the last parts of IANA names: "zone: names; zone: names". A name under two zones is ambiguous,
# "Name (Region)" says which one is meant; "(most of it)" is where nearly all of a country or state lives.
PLACES = """
Africa/Abidjan: Ivory Coast, Côte d'Ivoire, Yamoussoukro; Africa/Accra: Ghana, Kumasi; Africa/Addis_Ababa: Ethiopia;
Africa/Algiers: Algeria, Oran; Africa/Asmara: Eritrea; Africa/Bamako: Mali; Africa/Bangui: Central African Republic;
Africa/Banjul: Gambia; Africa/Bissau: Guinea-Bissau; Africa/Blantyre: Malawi, Lilongwe;
Africa/Brazzaville: Republic of the Congo; Africa/Bujumbura: Burundi, Gitega;
Africa/Cairo: Egypt, Alexandria, Giza, Luxor;
Africa/Casablanca: Morocco, Rabat, Marrakesh, Marrakech, Fez, Tangier, Agadir; Africa/Conakry: Guinea;
Africa/Dakar: Senegal; Africa/Dar_es_Salaam: Tanzania, Dodoma, Zanzibar, Arusha; Africa/Douala: Cameroon, Yaoundé;
Africa/Freetown: Sierra Leone; Africa/Gaborone: Botswana; Africa/Harare: Zimbabwe, Bulawayo;
Africa/Johannesburg: South Africa, Cape Town, Durban, Pretoria, Soweto, Gqeberha, Port Elizabeth, Bloemfontein;
Africa/Juba: South Sudan; Africa/Kampala: Uganda, Entebbe; Africa/Khartoum: Sudan, Omdurman; Africa/Kigali: Rwanda;
Africa/Kinshasa: Congo (west), DR Congo (west); Africa/Lagos: Nigeria, Abuja, Kano, Ibadan, Port Harcourt;
Africa/Libreville: Gabon; Africa/Lome: Togo; Africa/Luanda: Angola;
Africa/Lubumbashi: Congo (east), DR Congo (east), Goma, Kisangani; Africa/Lusaka: Zambia;
Africa/Malabo: Equatorial Guinea; Africa/Maputo: Mozambique, Beira; Africa/Maseru: Lesotho;
Africa/Mbabane: Eswatini, Swaziland, Lobamba; Africa/Mogadishu: Somalia, Hargeisa; Africa/Monrovia: Liberia;
Africa/Nairobi: Kenya, Mombasa, Kisumu; Africa/Ndjamena: Chad, N'Djamena; Africa/Niamey: Niger;
Africa/Nouakchott: Mauritania; Africa/Ouagadougou: Burkina Faso; Africa/Porto-Novo: Benin, Cotonou;
Africa/Sao_Tome: São Tomé and Príncipe; Africa/Tripoli: Libya, Benghazi; Africa/Tunis: Tunisia;
Africa/Windhoek: Namibia; America/Anchorage: Alaska, Fairbanks;
America/Argentina/Buenos_Aires: Argentina, Buenos Aires, Rosario, La Plata, Mar del Plata;
America/Argentina/Cordoba: Córdoba (Argentina); America/Asuncion: Paraguay; America/Barbados: Bridgetown;
America/Belize: Belmopan; America/Bogota: Colombia, Bogotá D.C., Medellín, Cali, Barranquilla, Cartagena;
America/Boise: Idaho (most of it); America/Cancun: Playa del Carmen, Tulum, Quintana Roo;
America/Caracas: Venezuela, Maracaibo, Valencia (Venezuela);
America/Chicago: Illinois, Houston, Dallas, Austin, San Antonio, Fort Worth, Texas (most of it), Minneapolis,
Minnesota, Milwaukee, Wisconsin, Madison, St. Louis, Kansas City, Missouri, New Orleans, Louisiana, Baton Rouge,
Memphis, Nashville, Tennessee (west), Oklahoma City, Oklahoma, Tulsa, Omaha, Nebraska (most of it), Iowa, Des
Moines, Arkansas, Little Rock, Alabama, Birmingham (Alabama), Mississippi, Wichita, Kansas (most of it), USA
(Central), North Dakota (most of it), South Dakota (east), Fargo, Kentucky (west), Springfield (Illinois);
America/Costa_Rica: San José (Costa Rica);
America/Denver: Colorado, Salt Lake City, Utah, Albuquerque, New Mexico, Santa Fe, El Paso, Wyoming, Cheyenne,
Montana, Billings, Boulder, Colorado Springs, USA (Mountain), South Dakota (west);
America/Detroit: Michigan (most of it), Ann Arbor, Grand Rapids, Lansing;
America/Edmonton: Alberta, Calgary, Banff, Canada (Mountain); America/El_Salvador: San Salvador;
America/Guatemala: Guatemala City; America/Guayaquil: Ecuador (most of it), Quito, Cuenca;
America/Guyana: Georgetown;
America/Halifax: Nova Scotia, New Brunswick, Prince Edward Island, Charlottetown, Canada (Atlantic);
America/Havana: Cuba, Santiago de Cuba; America/Hermosillo: Sonora;
America/Indiana/Indianapolis: Indiana (most of it), Fort Wayne; America/Jamaica: Kingston, Montego Bay;
America/Kentucky/Louisville: Louisville; America/La_Paz: Bolivia, Sucre, Santa Cruz de la Sierra, Cochabamba;
America/Lima: Peru, Cusco, Arequipa;
America/Los_Angeles: LA, California, San Francisco, SF, San Diego, San José (California), Sacramento, Oakland,
Fresno, Long Beach, Berkeley, Palo Alto, Silicon Valley, Hollywood, Seattle, Washington State, Tacoma, Spokane,
Redmond, Portland (Oregon), Oregon, Eugene, Las Vegas, Nevada, Reno, USA (Pacific); America/Managua: Nicaragua;
America/Manaus: Amazonas; America/Merida: Mérida (Mexico), Yucatán;
America/Mexico_City: CDMX, Ciudad de México, Guadalajara, Puebla, León (Mexico), Querétaro, Acapulco, Oaxaca, Mexico
(most of it); America/Monterrey: Nuevo León; America/Montevideo: Uruguay; America/Nassau: Bahamas;
America/New_York: NYC, New York City, Manhattan, Brooklyn, Queens, Bronx, Buffalo, Albany, New York State,
Washington, Washington DC, Boston, Massachusetts, Cambridge (Massachusetts), Philadelphia, Pittsburgh, Pennsylvania,
Newark, New Jersey, Jersey City, Baltimore, Maryland, Miami, Orlando, Tampa, Jacksonville, Fort Lauderdale, Florida
(most of it), Atlanta, Georgia (USA), Charlotte, Raleigh, North Carolina, South Carolina, Charleston, Virginia,
Richmond, Norfolk, West Virginia, Cleveland, Cincinnati, Columbus, Ohio, Connecticut, Hartford, Rhode Island,
Providence, Vermont, New Hampshire, Maine, Portland (Maine), Delaware, Knoxville, Kentucky (east), Cape Canaveral,
Tennessee (east), USA (East), Springfield (Massachusetts); America/Nuuk: Greenland; America/Panama: Panama City;
America/Paramaribo: Suriname; America/Phoenix: Arizona, Tucson, Scottsdale, Mesa; America/Port-au-Prince: Haiti;
America/Port_of_Spain: Trinidad and Tobago, Trinidad; America/Puerto_Rico: San Juan; America/Recife: Pernambuco;
America/Regina: Saskatchewan, Saskatoon, Canada (Saskatchewan);
America/Santiago: Chile (most of it), Valparaíso, Santiago de Chile;
America/Santo_Domingo: Dominican Republic, Punta Cana;
America/Sao_Paulo: São Paulo, Rio de Janeiro, Rio, Brasília, Belo Horizonte, Curitiba, Porto Alegre, Florianópolis,
Brazil (most of it); America/St_Johns: Newfoundland, Canada (Newfoundland);
America/Tegucigalpa: Honduras, San Pedro Sula;
America/Tijuana: Baja California, Mexicali;
America/Toronto: Ontario, Ottawa, Montréal, Québec, Québec City, Mississauga, Hamilton (Ontario), London Ontario,
Kingston Ontario, Waterloo, Canada (East);
America/Vancouver: British Columbia, Whistler, Surrey, Burnaby, Victoria (British Columbia), Canada (Pacific);
America/Winnipeg: Manitoba, Canada (Central); Asia/Aden: Yemen, Sanaa;
Asia/Almaty: Kazakhstan, Astana, Nur-Sultan, Shymkent; Asia/Amman: Jordan; Asia/Ashgabat: Turkmenistan;
Asia/Baghdad: Iraq, Basra, Mosul, Erbil; Asia/Bahrain: Manama; Asia/Baku: Azerbaijan;
Asia/Bangkok: Thailand, Chiang Mai, Phuket, Pattaya; Asia/Beirut: Lebanon; Asia/Bishkek: Kyrgyzstan;
Asia/Brunei: Bandar Seri Begawan; Asia/Colombo: Sri Lanka, Kandy; Asia/Damascus: Syria, Aleppo;
Asia/Dhaka: Bangladesh, Chittagong, Chattogram, Dacca; Asia/Dili: East Timor, Timor-Leste;
Asia/Dubai: United Arab Emirates, UAE, Emirates, Abu Dhabi, Sharjah; Asia/Dushanbe: Tajikistan; Asia/Gaza: Palestine;
Asia/Ho_Chi_Minh: Vietnam, Saigon, Ho Chi Minh City, Hanoi, Da Nang, Hai Phong; Asia/Hong_Kong: Kowloon;
Asia/Jakarta: Bandung, Surabaya, Yogyakarta, Medan, Semarang, Java, Sumatra, Indonesia (west);
Asia/Jayapura: Papua, Indonesia (east); Asia/Jerusalem: Israel, Haifa, Tel Aviv;
Asia/Kabul: Afghanistan, Kandahar, Herat;
Asia/Karachi: Pakistan, Lahore, Islamabad, Rawalpindi, Faisalabad, Peshawar, Hyderabad Pakistan;
Asia/Kathmandu: Nepal, Pokhara;
Asia/Kolkata: India, Mumbai, Bombay, Delhi, New Delhi, Bangalore, Bengaluru, Chennai, Madras, Hyderabad, Calcutta,
Pune, Ahmedabad, Jaipur, Surat, Lucknow, Kanpur, Nagpur, Goa, Kochi, Cochin, Agra, Varanasi, Amritsar, Kerala,
Kolkata; Asia/Kuala_Lumpur: Malaysia, KL, Penang, Johor Bahru, Malacca; Asia/Macau: Macao;
Asia/Makassar: Bali, Denpasar, Ubud, Lombok, Sulawesi, Indonesia (central);
Asia/Manila: Philippines, Quezon City, Cebu, Davao; Asia/Muscat: Oman; Asia/Nicosia: Cyprus, Limassol, Larnaca;
Asia/Novosibirsk: Russia (Novosibirsk); Asia/Phnom_Penh: Cambodia, Siem Reap; Asia/Pyongyang: North Korea;
Asia/Qatar: Doha; Asia/Riyadh: Saudi Arabia, Jeddah, Mecca, Medina, Dammam;
Asia/Seoul: South Korea, Korea, Republic of Korea, Busan, Incheon, Daegu, Jeju;
Asia/Shanghai: China, Beijing, Peking, Shenzhen, Guangzhou, Canton, Chengdu, Chongqing, Wuhan, Tianjin, Xi'an,
Hangzhou, Nanjing, Suzhou, Harbin, Shenyang, Qingdao, Dalian, Xiamen, Kunming, Lhasa, Tibet, PRC;
Asia/Taipei: Taiwan, Kaohsiung, Taichung; Asia/Tashkent: Uzbekistan; Asia/Tbilisi: Georgia (country), Batumi;
Asia/Tehran: Iran, Isfahan, Mashhad, Shiraz, Tabriz; Asia/Thimphu: Bhutan;
Asia/Tokyo: Japan, Osaka, Kyoto, Yokohama, Nagoya, Sapporo, Fukuoka, Kobe, Hiroshima, Nagasaki, Sendai, Okinawa,
Hokkaido, Nara; Asia/Ulaanbaatar: Mongolia; Asia/Vientiane: Laos, Luang Prabang; Asia/Vladivostok: Russia (Far East);
Asia/Yangon: Myanmar, Burma, Rangoon, Mandalay, Naypyidaw; Asia/Yekaterinburg: Russia (Urals), Chelyabinsk, Perm;
Asia/Yerevan: Armenia; Atlantic/Azores: Ponta Delgada; Atlantic/Bermuda: Hamilton (Bermuda);
Atlantic/Canary: Canary Islands, Tenerife, Las Palmas, Gran Canaria, Lanzarote; Atlantic/Cape_Verde: Praia;
Atlantic/Faroe: Faroe Islands, Tórshavn; Atlantic/Reykjavik: Iceland; Atlantic/Stanley: Falkland Islands;
Australia/Adelaide: South Australia, Australia (South);
Australia/Brisbane: Queensland, Gold Coast, Cairns, Australia (Queensland);
Australia/Darwin: Northern Territory, Alice Springs, Australia (North); Australia/Hobart: Tasmania;
Australia/Melbourne: Victoria (Australia), Geelong; Australia/Perth: Western Australia, Fremantle, Australia (West);
Australia/Sydney: New South Wales, NSW, Canberra, Newcastle (Australia), Wollongong, Australia (East);
Europe/Amsterdam: Netherlands, Holland, Rotterdam, The Hague, Hague, Utrecht, Eindhoven, Groningen, Maastricht;
Europe/Athens: Greece, Thessaloniki, Crete, Heraklion; Europe/Belgrade: Serbia, Novi Sad;
Europe/Berlin: Germany, Munich, München, Hamburg, Frankfurt, Cologne, Köln, Stuttgart, Düsseldorf, Leipzig, Dresden,
Hannover, Hanover, Nuremberg, Nürnberg, Bremen, Dortmund, Essen, Bonn, Heidelberg, Freiburg;
Europe/Bratislava: Slovakia; Europe/Brussels: Belgium, Antwerp, Ghent, Bruges;
Europe/Bucharest: Romania, Cluj-Napoca, Timișoara; Europe/Budapest: Hungary; Europe/Chisinau: Moldova;
Europe/Copenhagen: Denmark, Aarhus, Odense; Europe/Dublin: Ireland, Cork, Galway, Limerick;
Europe/Helsinki: Finland, Espoo, Tampere, Turku, Oulu;
Europe/Istanbul: Turkey, Türkiye, Ankara, Izmir, Antalya, Constantinople;
Europe/Kyiv: Ukraine, Kyiv, Kiev, Lviv, Odesa, Odessa, Kharkiv, Dnipro;
Europe/Lisbon: Portugal (most of it), Lisboa, Porto, Faro, Coimbra; Europe/Ljubljana: Slovenia, Maribor;
Europe/London: United Kingdom, UK, Great Britain, Britain, England, Scotland, Wales, Northern Ireland, Manchester,
Birmingham (England), Liverpool, Leeds, Sheffield, Bristol, Edinburgh, Glasgow, Aberdeen, Cardiff, Belfast, Oxford,
Cambridge (England), Brighton, Newcastle (England), Nottingham; Europe/Luxembourg: Luxembourg City;
Europe/Madrid: Spain (most of it), Barcelona, Valencia (Spain), Seville, Sevilla, Bilbao, Málaga, Zaragoza, Granada
(Spain), Palma, Mallorca, Ibiza, Córdoba (Spain), San Sebastián; Europe/Malta: Valletta; Europe/Minsk: Belarus;
Europe/Moscow: St. Petersburg, Sochi, Kazan, Nizhny Novgorod, Russia (Moscow);
Europe/Oslo: Norway, Bergen, Trondheim, Stavanger, Tromsø;
Europe/Paris: France, Marseille, Lyon, Nice, Toulouse, Bordeaux, Strasbourg, Lille, Nantes, Cannes, Montpellier;
Europe/Podgorica: Montenegro; Europe/Prague: Czech Republic, Czechia, Praha, Brno; Europe/Riga: Latvia;
Europe/Rome: Italy, Milan, Milano, Naples, Napoli, Turin, Torino, Florence, Firenze, Venice, Venezia, Bologna,
Genoa, Palermo, Verona, Pisa, Roma, Sicily, Sardinia; Europe/Sarajevo: Bosnia and Herzegovina, Bosnia;
Europe/Skopje: North Macedonia, Macedonia; Europe/Sofia: Bulgaria, Plovdiv, Varna;
Europe/Stockholm: Sweden, Gothenburg, Göteborg, Malmö, Uppsala; Europe/Tallinn: Estonia, Tartu;
Europe/Tirane: Albania, Tirana; Europe/Vaduz: Liechtenstein; Europe/Vatican: Vatican City;
Europe/Vienna: Austria, Wien, Salzburg, Graz, Innsbruck, Linz; Europe/Vilnius: Lithuania, Kaunas;
Europe/Warsaw: Poland, Warszawa, Kraków, Cracow, Gdańsk, Wrocław, Poznań, Łódź;
Europe/Zagreb: Croatia, Split, Dubrovnik;
Europe/Zurich: Switzerland, Zürich, Geneva, Genève, Basel, Bern, Lausanne, Lucerne, Lugano;
Indian/Antananarivo: Madagascar; Indian/Comoro: Comoros, Moroni; Indian/Mahe: Seychelles, Victoria (Seychelles);
Indian/Maldives: Malé; Indian/Mauritius: Port Louis; Indian/Reunion: Réunion; Pacific/Apia: Samoa;
Pacific/Auckland: New Zealand, NZ, Wellington, Christchurch, Queenstown, Dunedin, Rotorua, Hamilton (New Zealand);
Pacific/Efate: Vanuatu, Port Vila; Pacific/Fiji: Suva, Nadi; Pacific/Galapagos: Galápagos Islands;
Pacific/Guadalcanal: Solomon Islands, Honiara; Pacific/Honolulu: Hawaii, Waikiki, Maui;
Pacific/Majuro: Marshall Islands; Pacific/Noumea: New Caledonia; Pacific/Palau: Ngerulmud;
Pacific/Port_Moresby: Papua New Guinea; Pacific/Tahiti: French Polynesia, Papeete, Bora Bora;
Pacific/Tongatapu: Tonga, Nuku'alofa
"""
