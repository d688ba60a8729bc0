// Two answers: the page, and its news.
#include "bantam/cli/train/run_server.h"

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "bantam/cli/print/json_text.h"
#include "bantam/cli/report/run_page.h"
#include "bantam/cli/train/http_server.h"
#include "bantam/run/report/run_report.h"

namespace bantam::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kStarting =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"2\">"
    "<link rel=\"icon\" href=\"data:,\"><title>starting</title><p>The run is starting.</p></html>";

/// Change whenever the file, or one of the run's, does.
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

}  // namespace

struct RunServer::Impl {
  std::mutex guard;
  std::optional<fs::path> folder;
  std::optional<run::MetricsFile> metrics;  // read on from where the last answer ended
  int port = 0;
  std::optional<HttpServer> server;  // ends before what its thread reads

  /// What the files say now, as `write` writes it.
  template <class Write>
  HttpResponse answer(const char* type, bool histograms, const Write& write) {
    try {
      const std::string version = versions_of(*folder);
      run::RunReportOptions options;
      if (!histograms) options.most_histograms = 0;
      options.held_out.reset();
      options.metrics = &*metrics;
      std::array reports = {run::report_of(*folder, options)};
      reports[0].no_weights = reports[0].no_held_out =
          "Follows when the run has ended: `bantam report " + folder->string() + "`.";
      return {.type = type, .body = write(reports, version)};
    } catch (const std::exception& error) {  // a file is being replaced: the next request finds it
      return {.status = 503, .body = error.what()};
    }
  }
  HttpResponse page() {
    if (!folder) return {.type = "text/html", .body = kStarting};
    return answer("text/html", true, [](std::span<const run::RunReport> reports, const std::string& version) {
      return run_page(reports, {.version = version});
    });
  }
  HttpResponse news(const std::string& query) {
    constexpr std::string_view kSeen = "seen=";  // digits, dots and signs, which browsers send as they are
    const std::string seen = query.starts_with(kSeen) ? query.substr(kSeen.size()) : "";
    if (!folder || seen == versions_of(*folder)) return {.status = 204};
    const bool histograms = !seen.ends_with("." + version_of(*folder / "histograms.jsonl"));
    return answer("application/json", histograms,
                  [histograms](std::span<const run::RunReport> reports, const std::string& version) {
                    return json_text(run_page_news(reports, version, histograms));
                  });
  }
  /// A page of another site must not read the run by a name that it points at this machine.
  bool is_own(const std::string& host) const {
    return host == fmt::format("{}:{}", HttpServer::kAddress, port) || host == fmt::format("localhost:{}", port);
  }
  HttpResponse handle(const HttpRequest& request) {
    const std::lock_guard lock(guard);
    if (!is_own(request.host)) return {.status = 403};
    if (request.path == "/") return page();
    if (request.path == "/data.json") return news(request.query);
    return {.status = 404};
  }
};

RunServer::RunServer(int port) : impl_(std::make_unique<Impl>()) {
  const std::lock_guard lock(impl_->guard);  // a request waits until the port is known
  impl_->server.emplace(port, [impl = impl_.get()](const HttpRequest& request) { return impl->handle(request); });
  impl_->port = impl_->server->port();
}

RunServer::~RunServer() = default;
int RunServer::port() const { return impl_->port; }

void RunServer::follow(const fs::path& folder) {
  const std::lock_guard lock(impl_->guard);
  impl_->folder = folder;
  impl_->metrics.emplace(folder / "metrics.jsonl");
}

}  // namespace bantam::cli
