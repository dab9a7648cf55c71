"""Problems that outgrow one machine: generated, embedded, placed and checked on Spark."""
