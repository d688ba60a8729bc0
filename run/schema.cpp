// The description of whole configurations, and what the page says before its tables.
#include "bantam/run/schema.h"

#include "bantam/base/json.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/run.h"

namespace bantam::run {
namespace {

constexpr const char* kIntroduction =
    R"(<!-- Written by `bantam schema --markdown` from the code that reads configurations: `make schema` writes it anew. -->
# Configuration

A run is one YAML file, with overrides from the command line. This page lists every key: its type, what counts where it is
missing, its range and what it does. The program prints it (`bantam schema --markdown`) from the code that reads and checks
the keys, so that it lists what that program reads.

```
bantam train configs/quickstart.yaml train.epochs=10 data.pipeline.batch.size=64
```

**Files.** A file is one YAML document whose top is a map. The shortest has a `model`; `bantam train` also needs `data`. A key
that nothing reads, a value of another type or outside its range, and a shape that does not fit are errors, which name file,
line, column and the nearest valid key. A run's folder has its `config.yaml`: all keys with the values that counted, defaults
included.

**Overrides.** `a.b=c` sets key `b` of the map `a`; the value is YAML in flow style (`train.optimizer={sgd: {momentum: 0.9}}`).
A step may also be the index of a list's entry, or its name: `data.pipeline.batch.size=64` reaches `batch` in the list of
stages. Missing maps are made, and of two overrides of one key the later one counts.

**Names with options.** A layer, stage, loss, metric, optimizer or activation is a name (`relu`), or a map of the name to its
options (`conv2d: {filters: 64, kernel: 3}`). Programs that register their own ([EXTENDING.md](EXTENDING.md)) have them in
their own schema.

**Types.**

| type | written |
|---|---|
| integer | `16`, also `16.0` or `1e3` |
| number | `0.1`, `1.0e-3`; no infinities, no NaN |
| boolean | `true` or `false`, no other spelling |
| text | `data/cifar10`; text that looks like a number goes in quotes |
| word | one of the words of the range column |
| byte size | `4GiB`, `512 MiB`, `1.5GB`, `4096`: KiB, MiB, GiB, TiB are powers of 1024, kB, MB, GB, TB of 1000 |
| duration | `500` or `500updates`, `2epochs`, `30s`, `10min`, `1h`, where the range allows the unit |
| list of 2 integers | `[3, 5]`: height and width; where an integer is allowed, too, it stands for both |

`auto`: the program decides, before training, and the run's `config.yaml` says what it decided.

**Editors.** `bantam schema > bantam.schema.json` writes a JSON Schema (draft 2020-12). With the YAML language server, the
first line of a configuration names it: `# yaml-language-server: $schema=bantam.schema.json`. The editor then completes keys,
shows their meaning and marks what is wrong.

**Versions.** `version` is that of the format of configurations. A file without it is read as version 1, the present one.
)";

}  // namespace

ConfigSchema describe_run_config() {
  return describe_config([](const ConfigDocument& document) { (void)read_document(document, "config"); });
}

std::string schema_text() { return json_schema(describe_run_config(), "A configuration of Bantam").dump(2) + "\n"; }

std::string config_schema() { return schema_text(); }
std::string config_reference() { return reference_text(); }

std::string reference_text() { return kIntroduction + markdown_reference(describe_run_config()); }

}  // namespace bantam::run
