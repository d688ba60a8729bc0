// Two answers by HttpServer: the page, and its news.
#include "bantam/cli/train/run_server.h"

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/cli/pages/run_page.h"
#include "bantam/cli/train/http_server.h"
#include "bantam/run/report/run_report.h"

namespace bantam::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kHtml = "text/html; charset=utf-8";
constexpr const char* kStarting =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"2\">"
    "<link rel=\"icon\" href=\"data:,\"><title>starting</title><p>The run is starting.</p></html>";
/// An answer that is younger is sent to other clients as well: building one uses processor time that the training
/// could use.
constexpr std::chrono::seconds kFresh{1};
/// More than building an answer needs. It begins only where this much is free: the training comes first where memory is
/// short.
constexpr std::size_t kRoomBytes = 96 << 20;

void require_room() {
  void* const room = ::mmap(nullptr, kRoomBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED)
    throw Error("There is too little memory for the page; the training goes on. Ask again later.");
  ::munmap(room, kRoomBytes);
}

/// A text that changes whenever the file changes.
std::string version_of(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  const auto time = error ? fs::file_time_type() : fs::last_write_time(file, error);
  return fmt::format("{}-{}", error ? 0 : size, time.time_since_epoch().count());
}
std::string versions_of(const fs::path& folder) {
  return fmt::format("{}.{}.{}", version_of(folder / "run.json"), version_of(folder / "metrics.jsonl"),
                     version_of(folder / "histograms.jsonl"));
}

/// The page's own scripts may run, and no other.
const std::string& page_policy() {
  static const std::string policy = fmt::format(
      "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      run_page_script_hashes());
  return policy;
}

/// An answer, and the state of the files that it shows.
struct Made {
  std::string version = {};
  std::chrono::steady_clock::time_point time = {};
  std::shared_ptr<const std::string> text = nullptr;
};

}  // namespace

class RunServer::Impl {
 public:
  explicit Impl(int port)
      : server_(port, [this](const HttpRequest& request, int own) { return answer(request, own); }) {}
  ~Impl() { ends_ = true; }

  int port() const { return server_.port(); }
  void follow(const fs::path& folder) {
    const std::lock_guard lock(guard_);
    folder_ = folder;
  }

 private:
  HttpAnswer answer(const HttpRequest& request, int own_port) {
    const bool is_page = request.path == "/";
    if (!is_own_request(request, is_page, own_port))
      return text_answer(403, "Another site, or another name of this machine, may not read the run.");
    if (!is_page && request.path != "/data.json")
      return text_answer(404, "There are the page, /, and its data, /data.json.");
    if (const std::optional<fs::path> folder = folder_now(); folder != followed_) {
      followed_ = folder;
      metrics_.emplace(*folder / "metrics.jsonl");
      page_ = news_ = news_with_histograms_ = {};
    }
    return is_page ? page() : news(request.query);
  }

  HttpAnswer page() {
    if (!followed_) {
      HttpAnswer starting = text_answer(200, kStarting);
      starting.type = kHtml;
      return starting;
    }
    const Made& made = made_by(page_, true, [](std::span<const run::RunReport> reports, const std::string& version) {
      return run_page(reports, {.version = version});
    });
    return {.type = kHtml, .body = made.text, .security_policy = page_policy()};
  }

  HttpAnswer news(std::string_view query) {
    constexpr std::string_view kSeen = "seen=";
    const std::string_view seen = query.starts_with(kSeen) ? query.substr(kSeen.size()) : "";
    if (!followed_ || seen == versions_of(*followed_)) return {.status = 204};
    const bool histograms = !seen.ends_with("." + version_of(*followed_ / "histograms.jsonl"));
    const Made& made = made_by(histograms ? news_with_histograms_ : news_, histograms,
                               [=](std::span<const run::RunReport> reports, const std::string& version) {
                                 return json_text(run_page_news(reports, version, histograms));
                               });
    if (seen == made.version) return {.status = 204};
    return {.type = "application/json", .body = made.text};
  }

  std::optional<fs::path> folder_now() {
    const std::lock_guard lock(guard_);
    return folder_;
  }

  /// The answer of a kind that was made last, or, where that is old, as the files say now and as `write` writes it.
  template <class Write>
  const Made& made_by(Made& last, bool histograms, const Write& write) {
    const auto now = std::chrono::steady_clock::now();
    if (last.text != nullptr && now - last.time < kFresh) return last;
    require_room();
    std::string version = versions_of(*followed_);
    run::RunReportOptions options;
    if (!histograms) options.most_histograms = 0;
    options.held_out.reset();
    options.metrics = &*metrics_;
    options.on_line = [this] {
      if (ends_) throw Error("The run has ended.");
    };
    std::array reports = {run::report_of(*followed_, options)};
    reports[0].no_weights = reports[0].no_held_out =
        "Follows when the run has ended: `bantam report " + followed_->string() + "`.";
    auto text = std::make_shared<const std::string>(write(reports, version));
    last = {.version = std::move(version), .time = now, .text = std::move(text)};
    return last;
  }

  std::atomic<bool> ends_ = false;
  std::mutex guard_;
  std::optional<fs::path> folder_;
  // Used by the server's thread alone.
  std::optional<fs::path> followed_;
  std::optional<run::MetricsFile> metrics_;  // read on from where the last answer ended
  Made page_, news_, news_with_histograms_;
  HttpServer server_;  // ends before all that its thread uses
};

RunServer::RunServer(int port) try : impl_(std::make_unique<Impl>(port)) {
} catch (const Error& error) {
  throw ConfigError(fmt::format("--serve: {}", error.what()));
}
RunServer::~RunServer() = default;
int RunServer::port() const { return impl_->port(); }
void RunServer::follow(const fs::path& folder) { impl_->follow(folder); }

}  // namespace bantam::cli
