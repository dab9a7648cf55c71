"""Archives of Sensor.Community: cleaned on Spark into readings, sensors and a join matrix."""
