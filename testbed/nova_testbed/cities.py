"""Cities of the synthetic internet, where hosts of measurement platforms are.

Rounded coordinates of well-known cities; the weights follow where public measurement platforms
have their hosts: half of them in Europe.
"""

from __future__ import annotations

from typing import NamedTuple

CONTINENTS = ("africa", "asia", "europe", "north-america", "oceania", "south-america")


class City(NamedTuple):
    """A city: degrees north and east, and its number of hosts relative to other cities."""

    name: str
    continent: str
    latitude: float
    longitude: float
    weight: float


_TABLE = """
europe
Amsterdam 52.4 4.9 11.25, Frankfurt 50.1 8.7 10, London 51.5 -0.1 8.75, Paris 48.9 2.3 7.5
Berlin 52.5 13.4 5, Munich 48.1 11.6 3.75, Hamburg 53.6 10.0 3.75, Dusseldorf 51.2 6.8 3.75
Zurich 47.4 8.5 5, Geneva 46.2 6.1 2.5, Vienna 48.2 16.4 5, Prague 50.1 14.4 5
Brussels 50.9 4.4 3.75, Luxembourg 49.6 6.1 2.5, Milan 45.5 9.2 3.75, Rome 41.9 12.5 2.5
Turin 45.1 7.7 1.25, Madrid 40.4 -3.7 3.75, Barcelona 41.4 2.2 1.25, Lisbon 38.7 -9.1 2.5
Marseille 43.3 5.4 1.25, Lyon 45.8 4.8 1.25, Manchester 53.5 -2.2 2.5, Edinburgh 55.9 -3.2 1.25
Dublin 53.3 -6.3 2.5, Copenhagen 55.7 12.6 3.75, Stockholm 59.3 18.1 5, Gothenburg 57.7 12.0 1.25
Oslo 59.9 10.8 3.75, Helsinki 60.2 24.9 3.75, Tallinn 59.4 24.8 2.5, Riga 56.9 24.1 1.25
Vilnius 54.7 25.3 1.25, Warsaw 52.2 21.0 3.75, Krakow 50.1 19.9 1.25, Budapest 47.5 19.0 2.5
Bratislava 48.1 17.1 1.25, Ljubljana 46.1 14.5 2.5, Zagreb 45.8 16.0 1.25, Belgrade 44.8 20.5 1.25
Sofia 42.7 23.3 2.5, Bucharest 44.4 26.1 2.5, Athens 38.0 23.7 2.5, Istanbul 41.0 29.0 2.5
Kyiv 50.5 30.5 3.75, Lviv 49.8 24.0 1.25, Chisinau 47.0 28.9 1.25, Moscow 55.8 37.6 5
Petersburg 59.9 30.3 2.5, Yekaterinburg 56.8 60.6 1.25, Reykjavik 64.1 -21.9 1.25
Nicosia 35.2 33.4 1.25, Valletta 35.9 14.5 1.25, Kazan 55.8 49.1 1.25
north-america
New-York 40.7 -74.0 6, Ashburn 39.0 -77.5 5, Boston 42.4 -71.1 2, Atlanta 33.7 -84.4 3
Miami 25.8 -80.2 3, Chicago 41.9 -87.6 4, Dallas 32.8 -96.8 4, Houston 29.8 -95.4 1
Denver 39.7 -105.0 2, Phoenix 33.4 -112.1 1, Los-Angeles 34.1 -118.2 4, San-Jose 37.3 -121.9 6
Seattle 47.6 -122.3 3, Salt-Lake-City 40.8 -111.9 1, Minneapolis 45.0 -93.3 1
Kansas-City 39.1 -94.6 1, Toronto 43.7 -79.4 3, Montreal 45.5 -73.6 2, Vancouver 49.3 -123.1 2
Calgary 51.0 -114.1 1, Winnipeg 49.9 -97.1 1, Mexico-City 19.4 -99.1 1, Panama-City 9.0 -79.5 1
San-Juan 18.5 -66.1 0.5, Port-of-Spain 10.7 -61.5 0.5, Honolulu 21.3 -157.9 0.5
south-america
Sao-Paulo -23.5 -46.6 4, Rio -22.9 -43.2 1, Porto-Alegre -30.0 -51.2 1, Fortaleza -3.7 -38.5 1
Buenos-Aires -34.6 -58.4 2, Montevideo -34.9 -56.2 1, Santiago -33.4 -70.7 1, Lima -12.0 -77.0 1
Bogota 4.7 -74.1 1, Quito -0.2 -78.5 1, Caracas 10.5 -66.9 0.5
asia
Tokyo 35.7 139.7 4, Osaka 34.7 135.5 2, Seoul 37.6 127.0 2, Hong-Kong 22.3 114.2 4
Taipei 25.0 121.6 2, Singapore 1.35 103.8 6, Kuala-Lumpur 3.1 101.7 1, Jakarta -6.2 106.8 2
Bangkok 13.8 100.5 1, Hanoi 21.0 105.8 1, Manila 14.6 121.0 1, Beijing 39.9 116.4 1
Shanghai 31.2 121.5 1, Mumbai 19.1 72.9 2, Chennai 13.1 80.3 1, Delhi 28.6 77.2 1
Bangalore 13.0 77.6 1, Dhaka 23.8 90.4 1, Colombo 6.9 79.9 0.5, Kathmandu 27.7 85.3 1
Karachi 24.9 67.0 0.5, Dubai 25.2 55.3 2, Manama 26.2 50.6 1, Riyadh 24.7 46.7 0.5
Tehran 35.7 51.4 2, Tel-Aviv 32.1 34.8 1, Almaty 43.2 76.9 1, Tbilisi 41.7 44.8 0.5
Yerevan 40.2 44.5 1, Novosibirsk 55.0 82.9 1
oceania
Sydney -33.9 151.2 3, Melbourne -37.8 145.0 2, Brisbane -27.5 153.0 1, Perth -32.0 115.9 1
Auckland -36.8 174.8 2, Wellington -41.3 174.8 1, Noumea -22.3 166.4 1, Suva -18.1 178.4 0.5
africa
Johannesburg -26.2 28.0 3, Cape-Town -33.9 18.4 2, Nairobi -1.3 36.8 2, Lagos 6.5 3.4 1
Accra 5.6 -0.2 1, Cairo 30.0 31.2 0.5, Tunis 36.8 10.2 1, Casablanca 33.6 -7.6 0.5
Dakar 14.7 -17.4 0.5, Kampala 0.3 32.6 0.5, Dar-es-Salaam -6.8 39.3 1, Mauritius -20.2 57.5 1
Luanda -8.8 13.2 0.5, Kigali -1.9 30.1 0.5
"""


def _cities() -> tuple[City, ...]:
    cities, continent = [], ""
    for line in _TABLE.split("\n"):
        if line in CONTINENTS:
            continent = line
        elif line:
            for entry in line.split(", "):
                name, latitude, longitude, weight = entry.split()
                place = (float(latitude), float(longitude), float(weight))
                cities.append(City(name, continent, *place))
    return tuple(cities)


CITIES = _cities()
