-- The DEBS-style query: pressure joined with humidity on the region and a tumbling window of
-- {window_ms} ms over event time (Nova paper, section 4.1). Both streams have the columns sensor,
-- region, sequence, time_ms (ms since the epoch) and value.
SELECT l.time_ms - l.time_ms % {window_ms} AS window_ms,
       l.region AS region,
       l.sensor AS left_sensor,
       l.sequence AS left_sequence,
       l.value AS left_value,
       r.sensor AS right_sensor,
       r.sequence AS right_sequence,
       r.value AS right_value
FROM pressure AS l
JOIN humidity AS r
  ON l.region = r.region
 AND l.time_ms - l.time_ms % {window_ms} = r.time_ms - r.time_ms % {window_ms}{keys}
