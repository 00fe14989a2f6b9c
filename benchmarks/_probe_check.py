import sys, yaml, hashlib
from schedmate.llm.redact import Redactor
show = sys.argv[1:] 
out = {"dev": [0, 0], "held out": [0, 0]}
for g, l in yaml.safe_load(open("benchmarks/redaction_probes.yaml")).items():
    for p in l:
        half = "dev" if hashlib.sha256(p["text"].encode()).digest()[0] % 2 else "held out"
        r = Redactor().redact(p["text"])
        leak = str(p["secret"]) in r
        out[half][0] += leak; out[half][1] += 1
        if leak and half in show: print(g, "|", repr(r))
print(out)
