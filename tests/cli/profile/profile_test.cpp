// `bantam profile memory`: four files that tell the same story, to the byte.
#include <map>
#include <set>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "tests/cli/program.h"

namespace bantam::cli::profile_test {
namespace {

using nlohmann::json;

/// Lines of a CSV file by column. No cell of these runs holds a comma.
std::vector<std::map<std::string, std::string>> read_csv(const std::string& text) {
  std::istringstream lines(text);
  const auto cells = [](const std::string& line) {
    std::vector<std::string> parts;
    std::istringstream stream(line);
    for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
    return parts;
  };
  std::string line;
  std::getline(lines, line);
  const auto names = cells(line);
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(lines, line)) {
    const auto values = cells(line);
    EXPECT_EQ(values.size(), names.size()) << line;
    for (std::size_t i = 0; i < names.size() && i < values.size(); ++i) {
      if (i == 0) rows.emplace_back();
      rows.back()[names[i]] = values[i];
    }
  }
  return rows;
}

/// Sums without the categories that have nothing.
std::map<std::string, std::uint64_t> present(const json& by_category) {
  std::map<std::string, std::uint64_t> sums;
  for (const auto& [name, bytes] : by_category.items())
    if (bytes.get<std::uint64_t>() != 0) sums[name] = bytes.get<std::uint64_t>();
  return sums;
}

class Profile : public ProgramTest {
 protected:
  Profile() { write_tiny_config(); }
  json profile(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"profile", "memory", "tiny.yaml", "--out", "p", "--threads", "1", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? outcome.last_json() : json();
  }
  json page_data() const {
    const std::string page = read("p/report.html"), begin = "<script type=\"application/json\" id=\"data\">";
    const std::size_t from = page.find(begin) + begin.size();
    return json::parse(page.substr(from, page.find("</script>", from) - from));
  }
};

TEST_F(Profile, EventsReconcileWithTheStatistics) {
  const json result = profile();
  const json& report = result["report"];
  EXPECT_EQ(result["peak_bytes"], report["peak_bytes"]);
  EXPECT_EQ(result["planned_peak_bytes"], report["peak_bytes"]);
  const auto rows = read_csv(read("p/events.csv"));
  ASSERT_EQ(rows.size(), result["events"].get<std::size_t>());
  std::uint64_t in_use = 0, requested = 0, peak = 0, reserved = 0, live = 0;
  std::map<std::string, std::uint64_t> by_category, at_peak;
  std::set<std::string> steps, phases;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    const auto number = [&](const char* column) { return std::stoull(row.at(column)); };
    EXPECT_EQ(number("tick"), i);
    const bool allocation = row.at("action") == "alloc";
    const std::uint64_t sign = allocation ? 1 : ~std::uint64_t{0};  // minus one
    in_use += sign * number("bytes");
    requested += sign * number("requested");
    by_category[row.at("category")] += sign * number("bytes");
    live += sign;
    EXPECT_EQ(number("in_use"), in_use) << i;
    EXPECT_LE(number("offset") + number("bytes"), report["peak_held_bytes"].get<std::uint64_t>());
    reserved = std::max<std::uint64_t>(reserved, number("held"));
    steps.insert(row.at("step"));
    phases.insert(row.at("phase"));
    if (in_use <= peak) continue;
    peak = in_use;
    at_peak = by_category;
  }
  EXPECT_EQ(peak, report["peak_bytes"]);
  EXPECT_EQ(reserved, report["peak_held_bytes"]);
  EXPECT_EQ(in_use, report["in_use_bytes"]);
  EXPECT_EQ(requested, report["requested_bytes"]);
  EXPECT_EQ(live, report["live_allocations"]);
  std::erase_if(at_peak, [](const auto& entry) { return entry.second == 0; });
  std::erase_if(by_category, [](const auto& entry) { return entry.second == 0; });
  EXPECT_EQ(at_peak, present(report["by_category_at_peak"]));
  EXPECT_EQ(by_category, present(report["by_category"]));
  EXPECT_EQ(steps, (std::set<std::string>{"0", "1", "2", "3", "4"}));
  EXPECT_EQ(phases, (std::set<std::string>{"setup", "input", "forward", "backward"}));  // an update takes no memory
}

TEST_F(Profile, TheSnapshotIsOneThatPyTorchsToolsRead) {
  const json result = profile({"--batch-size", "8", "train.accumulate=2"});
  const std::string command = "python3 " BANTAM_SOURCE_DIR "/tests/cli/check_snapshot.py " +
                              path("p/snapshot.pickle").string() + " > " + path("sums.json").string();
  if (std::system("python3 -c pass > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3: skipped";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const json sums = json::parse(read("sums.json")), report = result["report"];
  EXPECT_EQ(sums["peak"], report["peak_bytes"]);
  EXPECT_EQ(present(sums["by_category_at_peak"]), present(report["by_category_at_peak"]));
  EXPECT_EQ(sums["in_use"], report["in_use_bytes"]);
  EXPECT_EQ(sums["allocated"], report["in_use_bytes"]);
  EXPECT_EQ(sums["requested"], report["requested_bytes"]);
  EXPECT_EQ(sums["held"], report["held_bytes"]);
}

TEST_F(Profile, TheTraceIsWhatPerfettoReads) {
  const json report = profile()["report"];
  const json trace = json::parse(read("p/trace.json"));
  std::map<std::string, std::uint64_t> counters;
  std::map<int, double> slice_end;
  std::map<std::string, int> kinds;
  std::uint64_t peak = 0;
  for (const json& event : trace["traceEvents"]) {
    const std::string kind = event["ph"];
    ++kinds[kind];
    ASSERT_TRUE(event["name"].is_string() && event["ts"].is_number() && event["pid"].is_number());
    EXPECT_GE(event["ts"].get<double>(), 0.0);
    if (kind == "X") {  // slices of a track follow each other
      double& end = slice_end[event["tid"].get<int>()];
      EXPECT_GE(event["ts"].get<double>() + 1e-6, end) << event;
      EXPECT_GE(event["dur"].get<double>(), 0.0);
      end = event["ts"].get<double>() + event["dur"].get<double>();
    } else if (kind == "C") {
      counters[event["name"]] = event["args"]["bytes"];
      if (event["name"] == "in use") peak = std::max(peak, event["args"]["bytes"].get<std::uint64_t>());
    } else if (kind == "i") {
      EXPECT_EQ(event["s"], "t");
    } else {
      EXPECT_EQ(kind, "M");
    }
  }
  EXPECT_EQ(peak, report["peak_bytes"]);
  EXPECT_EQ(counters.at("in use"), report["in_use_bytes"]);
  EXPECT_EQ(counters.at("held"), report["held_bytes"]);
  for (const auto& [category, bytes] : present(report["by_category"])) EXPECT_EQ(counters.at(category), bytes);
  EXPECT_EQ(slice_end.size(), 3u) << "steps, phases, layers";
  EXPECT_EQ(kinds["i"], kinds["X"] == 0 ? 0 : static_cast<int>(read_csv(read("p/events.csv")).size()));
}

TEST_F(Profile, ThePageHoldsTheSameDataAndAsksForNoNetwork) {
  const json report = profile()["report"];
  const json data = page_data();
  EXPECT_EQ(data["report"], report);
  const json& life = data["intervals"];
  const auto peak_tick = data["peak_tick"].get<std::int64_t>();
  std::uint64_t at_peak = 0, at_end = 0;
  for (std::size_t i = 0; i < life["lower"].size(); ++i) {
    const auto lower = life["lower"][i].get<std::int64_t>(), upper = life["upper"][i].get<std::int64_t>();
    const auto bytes = life["bytes"][i].get<std::uint64_t>();
    if (lower <= peak_tick && (upper < 0 || peak_tick < upper)) at_peak += bytes;
    if (upper < 0) at_end += bytes;
  }
  EXPECT_EQ(at_peak, report["peak_bytes"]);
  EXPECT_EQ(at_end, report["in_use_bytes"]);
  std::uint64_t reserved = 0;
  for (const json& range : data["ranges"])
    reserved += range["held"].get<bool>() ? range["bytes"].get<std::uint64_t>() : 0;
  EXPECT_EQ(reserved, report["held_bytes"]);
  ASSERT_EQ(data["curve"].size(), 7u);
  for (const json& point : data["curve"]) {
    std::uint64_t sum = 0;
    for (const json& bytes : point["by_category"]) sum += bytes.get<std::uint64_t>();
    EXPECT_EQ(sum, point["peak_bytes"]);
    if (point["batch"] == 16) {
      EXPECT_EQ(sum, report["peak_bytes"]);
    }
  }
  const std::string page = read("p/report.html");
  for (const char* asks : {"http:", "https:", " src=", " href=", "@import", "url(", "fetch(", "{{"})
    EXPECT_EQ(page.find(asks), std::string::npos) << asks;
}

TEST_F(Profile, ThePageBeginsWithASentenceThatPlansStandFor) {
  const auto plan = [&](const std::string& recompute) {
    return run({"plan", "deep.yaml", "--batch-sizes", "64", "--recompute", recompute, "--json"}).last_json();
  };
  std::string text = read("tiny.yaml");
  const std::size_t begin = text.find("    - conv2d"), end = text.find("    - dropout");
  std::string layers;
  for (const char* name : {"a", "b", "c", "d"})
    layers += std::string("    - block: {name: ") + name +
              ", body: [conv2d: {filters: 8, kernel: 3, padding: same}, batch_norm, relu, conv2d: {filters: 8, kernel: "
              "3, padding: same}, batch_norm, relu]}\n";
  write("deep.yaml", text.replace(begin, end - begin, layers));
  ASSERT_EQ(
      run({"profile", "memory", "deep.yaml", "--batch-size", "64", "--planned", "--steps", "1", "--out", "p"}).code, 0);
  const std::string page = read("p/report.html"), open = "<p id=\"headline\">";
  const std::size_t at = page.find(open);
  ASSERT_NE(at, std::string::npos);
  const std::string sentence = page.substr(at + open.size(), page.find("</p>", at) - at - open.size());
  const json none = plan("none");
  const auto peak = none["peak_bytes"].get<double>(),
             share = 100 * none["by_category"]["activation"].get<double>() / peak;
  EXPECT_EQ(sentence.rfind(fmt::format("{:.0f} % of the peak of {} are activations; recompute: cheap would need {} (+",
                                       share, format_byte_size(none["peak_bytes"].get<std::uint64_t>()),
                                       format_byte_size(plan("cheap")["peak_bytes"].get<std::uint64_t>())),
                           0),
            0u)
      << sentence;
  EXPECT_NE(sentence.find("recompute: all " + format_byte_size(plan("all")["peak_bytes"].get<std::uint64_t>())),
            std::string::npos)
      << sentence;
}

/// What `script` returns in the page in a browser of this width (it has a least one, 500 in our check); nothing where
/// the browser fails.
json in_browser(const std::filesystem::path& folder, std::string page, int width, const std::string& script) {
  const std::size_t end = page.rfind("</body>");
  page.insert(
      end,
      "<pre id=\"answer\"></pre><script>\n"
      "const press = (id, key) => document.getElementById(id).dispatchEvent(new KeyboardEvent('keydown', {key}));\n"
      "document.getElementById('answer').textContent = 'ANSWER' + JSON.stringify((() => {" +
          script + "})()) + 'END';\n</script>");
  std::ofstream(folder / "driven.html") << page;
  const std::string dump = (folder / "dom.txt").string(),
                    command = "timeout 60 chromium --headless --no-sandbox --disable-gpu --window-size=" +
                              std::to_string(width) + ",900 --user-data-dir=" + (folder / "browser").string() +
                              " --dump-dom file://" + (folder / "driven.html").string() + " > " + dump + " 2> " +
                              (folder / "browser.txt").string();
  if (std::system(command.c_str()) != 0) return {};
  const std::string dom = read_file(dump);
  const std::size_t from = dom.find("\">ANSWER") + 8;
  std::string answer = dom.substr(from, dom.find("END", from) - from);
  for (const auto& [escape, plain] : {std::pair("&lt;", "<"), std::pair("&gt;", ">"), std::pair("&amp;", "&")})
    for (std::size_t at = answer.find(escape); at != std::string::npos; at = answer.find(escape, at))
      answer.replace(at, std::string(escape).size(), plain);
  return json::parse(answer);
}

TEST_F(Profile, ChartsAreReachedByKeyboardAndListWhatIsAlive) {
  const json result = profile({"--planned"});
  const std::string page = read("p/report.html");
  for (const char* part :
       {"id=\"timeline\" role=\"slider\" tabindex=\"0\"", "id=\"map\"", "[tabindex]:focus-visible", "id=\"alive\""})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(page.find("held but not in use then"), std::string::npos) << "plain words";
  if (std::system("chromium --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "no chromium: only the text was looked at";
  const json answer = in_browser(path("p"), page, 1280, R"(
    const at = id => document.getElementById(id), lines = () => [...document.querySelectorAll("#alive li")].map(l => l.textContent);
    const seen = {charts: [...document.querySelectorAll("canvas, #peak-bar, #curve g")].map(c => [c.tabIndex, c.getAttribute("aria-label") || ""])};
    seen.peak = lines();
    const box = at("timeline").getBoundingClientRect();
    at("timeline").dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + margin.left + 1, clientY: box.top + 50}));
    seen.hovered = lines();
    at("timeline").dispatchEvent(new PointerEvent("pointerleave", {pointerType: "mouse"}));
    seen.left = lines();
    seen.value = at("timeline").getAttribute("aria-valuetext");
    press("timeline", "Home"); seen.home = at("timeline").getAttribute("aria-valuenow"); seen.first = view.lower;
    press("timeline", "ArrowRight"); seen.right = at("timeline").getAttribute("aria-valuenow");
    press("timeline", "End"); seen.end = lines();
    press("map", "ArrowUp"); seen.lowest = at("map-now").textContent;
    press("map", "ArrowUp"); seen.next = at("map-now").textContent;
    press("map", "Escape"); seen.gone = at("map-now").textContent;
    return seen;)");
  ASSERT_FALSE(answer.is_null()) << read("p/browser.txt");
  ASSERT_EQ(answer["charts"].size(), 2u + 1 + 7) << "two canvases, the bar of the peak, seven batch sizes";
  for (const json& chart : answer["charts"]) {
    EXPECT_EQ(chart[0], 0) << chart;
    EXPECT_FALSE(chart[1].get<std::string>().empty()) << "every chart has a text";
  }
  EXPECT_GE(answer["peak"].size(), 5u);
  EXPECT_NE(answer["peak"].dump().find("optimizer/moment"), std::string::npos) << answer["peak"];
  EXPECT_NE(answer["hovered"], answer["peak"]) << "what is alive where one points";
  EXPECT_EQ(answer["left"], answer["peak"]);
  EXPECT_NE(answer["value"].get<std::string>().find("Largest: "), std::string::npos) << answer["value"];
  EXPECT_EQ(std::stoll(answer["home"].get<std::string>()), answer["first"].get<std::int64_t>());
  EXPECT_EQ(std::stoll(answer["right"].get<std::string>()), answer["first"].get<std::int64_t>() + 1);
  EXPECT_NE(answer["end"], answer["peak"]);
  EXPECT_NE(answer["lowest"].get<std::string>().find("alive from call"), std::string::npos) << answer["lowest"];
  EXPECT_NE(answer["next"], answer["lowest"]);
  EXPECT_EQ(answer["gone"].get<std::string>().rfind("Point at", 0), 0u) << answer["gone"];
}

TEST_F(Profile, LabelsOnAPhoneAreAsLargeAsOnADesktop) {
  if (std::system("chromium --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no chromium: skipped";
  (void)profile({"--planned"});
  const json answer = in_browser(path("p"), read("p/report.html"), 390, R"(
    document.body.style.width = "390px";
    dispatchEvent(new Event("resize"));
    const box = document.querySelector("#curve svg"), scale = box.getBoundingClientRect().width / box.viewBox.baseVal.width;
    return {label: scale * parseFloat(getComputedStyle(document.querySelector("#curve text")).fontSize),
            wide: document.body.scrollWidth};)");
  ASSERT_FALSE(answer.is_null()) << read("p/browser.txt");
  EXPECT_GE(answer["label"].get<double>(), 11.5) << "pixels of a label's height";
  EXPECT_LE(answer["wide"].get<double>(), 391);
}

TEST_F(Profile, NamesCannotBreakOutOfThePage) {
  const Outcome outcome = run({"profile", "memory", "tiny.yaml", "--out", "p", "--planned", "--steps", "1",
                               "model.name=\"</script><b>{{data}}\""});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(page_data()["about"]["model"], "</script><b>{{data}}");
  EXPECT_EQ(read("p/report.html").find("<b>"), std::string::npos);
}

TEST_F(Profile, IsPlannedForDevicesThatAreNotHere) {
  const json result = profile({"--planned", "--device", "cuda:5", "--precision", "mixed_float16", "--steps", "2"});
  EXPECT_EQ(result["device"], "meta(cuda:5)");
  EXPECT_EQ(result["peak_bytes"], result["planned_peak_bytes"]);
  EXPECT_EQ(result["last_step"], 2);
  EXPECT_EQ(page_data()["device_bytes"], 0);
}

TEST_F(Profile, OfAStandInIsBoundAsTheDeviceIs) {
  const auto profile = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"profile", "memory", "tiny.yaml", "--planned", "--out", "p", "--overwrite"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments).code;
  };
  EXPECT_EQ(profile({"--device", "cpu/0", "memory.logical={cpu: [32MiB]}"}), 0);
  EXPECT_EQ(profile({"--device", "cpu/0", "memory.logical={cpu: [256KiB]}"}), 4);
  EXPECT_EQ(profile({"memory={limits: {cpu: 40MiB}, logical: {cpu: [40704KiB]}}"}), 4) << "256 KiB are left";
  EXPECT_EQ(profile({"--device", "cuda:5", "memory.limits={\"cuda:5\": 2GiB}"}), 0);
  EXPECT_EQ(profile({"--device", "cuda:5", "memory.limits={\"cuda:5\": 256MiB}"}), 4) << "the context takes it all";
}

TEST_F(Profile, PlannedAllocationsLieWhereTheRunsDo) {
  const auto calls = [&] {
    std::vector<std::vector<std::string>> rows;
    for (const auto& row : read_csv(read("p/events.csv")))
      rows.push_back({row.at("step"), row.at("action"), row.at("owner"), row.at("bytes"), row.at("offset")});
    return rows;
  };
  const json real = profile();
  const auto run_calls = calls();
  const json planned = profile({"--planned", "--overwrite"});
  EXPECT_EQ(calls(), run_calls);
  EXPECT_EQ(planned["report"]["peak_held_bytes"], real["report"]["peak_held_bytes"]);
}

TEST_F(Profile, ChoosesWhatABenchWould) {
  EXPECT_EQ(profile({"--planned", "--steps", "1", "data.pipeline.batch.size=auto"})["batch"], 256);
  EXPECT_EQ(profile({"--planned", "--overwrite", "--steps", "1", "--device", "t4"})["device"], "meta(cuda:0)");
  EXPECT_EQ(page_data()["about"]["target"], "t4 (estimate), planned") << "what people read";
  EXPECT_NE(read("p/report.html").find("<title>Memory of tiny on t4 (estimate), planned</title>"), std::string::npos);
  EXPECT_GT(page_data()["device_bytes"].get<std::uint64_t>(), std::uint64_t{14} << 30);
  const Outcome absent = run({"profile", "memory", "tiny.yaml", "--device", "t4"});
  EXPECT_EQ(absent.code, 2);
  EXPECT_NE(absent.err.find("--planned"), std::string::npos) << absent.err;
  EXPECT_EQ(run({"profile", "memory", "tiny.yaml", "--planned", "--recompute", "auto"}).code, 2) << "nothing to fit";
  EXPECT_EQ(run({"profile", "memory", "tiny.yaml", "--planned", "--recompute", "none,all"}).code, 2);
  // A budget of a little less than the step takes: the same policy as in bench memory.
  const auto free = profile({"--planned", "--overwrite", "--steps", "1", "--batch-size", "64"});
  const std::string budget = "memory.budget=" + std::to_string(free["peak_bytes"].get<std::uint64_t>() * 97 / 100);
  const Outcome bench = run({"bench", "memory", "tiny.yaml", "--batch-sizes", "64", budget, "--recompute", "auto",
                             "--json", "--seconds", "0.01", "--threads", "1"});
  ASSERT_EQ(bench.code, 0) << bench.err << bench.out;
  const json chosen = profile({"--batch-size", "64", "--recompute", "auto", budget, "--overwrite"});
  EXPECT_EQ(chosen["recompute"], bench.last_json()["recompute"]);
  EXPECT_NE(chosen["recompute"], "none");
  EXPECT_LT(chosen["peak_bytes"].get<std::uint64_t>(), free["peak_bytes"].get<std::uint64_t>());
}

TEST_F(Profile, ExplainsWhatDoesNotFit) {
  const Outcome outcome = run({"profile", "memory", "tiny.yaml", "--batch-size", "2048", "memory.limits={cpu: 16MiB}",
                               "recompute=none", "--threads", "1"});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_NE(outcome.err.find("Each of these fits:"), std::string::npos) << outcome.err;
}

TEST_F(Profile, NeverOverwritesUnasked) {
  ASSERT_EQ(run({"profile", "memory", "tiny.yaml", "--planned", "--steps", "1", "--out", "p"}).code, 0);
  const std::string before = read("p/events.csv");
  const Outcome again = run({"profile", "memory", "tiny.yaml", "--planned", "--out", "p"});
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.err.find("--overwrite"), std::string::npos) << again.err;
  EXPECT_EQ(read("p/events.csv"), before);
  EXPECT_EQ(run({"profile", "memory", "tiny.yaml", "--planned", "--out", "p", "--overwrite"}).code, 0);
  EXPECT_GT(read("p/events.csv").size(), before.size()) << "four steps instead of one";
  const Outcome named = run({"profile", "memory", "tiny.yaml", "--planned", "--steps", "1"});
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_NE(named.out.find("profile-tiny-"), std::string::npos) << named.out;
}

TEST_F(Profile, WordsFitIn80Columns) {
  const Outcome outcome = run({"profile", "memory", BANTAM_SOURCE_DIR "/configs/resnet50.yaml", "--planned", "--steps",
                               "1", "--out", "p", "memory.limits={cpu: 64GiB}", "--device", "cpu"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  for (const char* part : {"difference 0", "limit", "in use, by layer", "p/report.html"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
}

TEST_F(Profile, SaysWhatIsWrongWithSteps) {
  for (const char* steps : {"0", "4-2", "a-b", "2-", "-3", "1-1001", "2-3-4"}) {
    const Outcome outcome = run({"profile", "memory", "tiny.yaml", std::string("--steps=") + steps});
    EXPECT_EQ(outcome.code, 2) << steps;
    EXPECT_NE(outcome.err.find("--steps"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(run({"profile", "memory", "tiny.yaml", "--recompute", "nothere", "--planned"}).code, 2);
  EXPECT_EQ(run({"profile", "memory", "tiny.yaml", "memory.limits={cpu: 64KiB}"}).code, 4);
}

}  // namespace
}  // namespace bantam::cli::profile_test
