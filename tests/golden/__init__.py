"""Goldens: what Nova answered to fixed inputs, and a comparison with what it answers now.

Inputs are problems (``problems/``), events (``events/``) and folders of runs (``runs/``); they were
drawn once and are only files now. Answers are in ``expected/``, a JSON file per case. Everything
goes through the command ``nova``, so goldens outlive what is behind it.

* ``python -m tests.golden`` compares, and names the file, the place, the old and the new value.
* ``python -m tests.golden --write`` records anew.
* With names of cases (``pairs/heights``, ``live``), either does only these.

The runs ``flink``, ``flink-load`` and ``flink-queries`` took place, on a virtual rack; ``storm``,
``spark`` and ``flink-from-kafka`` are drawn, by ``tests/nova_harness/report_runs.py``. A real one
replaces a drawn one so: copy a run of a few hundred results without ``flow.json`` and
``hosts.parquet``, take out of ``environment.json`` what names the machine, and record anew.
"""
