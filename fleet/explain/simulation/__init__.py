"""What a fleet.yaml would have done with recorded demand: `fleet simulate`.

Begin with `replay.py`. `demand.py` turns worlds into jobs and other events, `farm.py` is the
scripted world that answers a plan, and `figures.py` what comes out.
"""
