// Two answers by cpp-httplib: the page, and its news.
#include "bantam/cli/train/run_server.h"

#include <array>
#include <atomic>
#include <csignal>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include <fmt/format.h>
#include <httplib.h>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/cli/report/run_page.h"
#include "bantam/run/report/run_report.h"

namespace bantam::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kAddress = "127.0.0.1";
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

/// Signals are for the thread that trains.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

struct RunServer::Impl {
  httplib::Server server;
  int port = 0;
  std::thread thread;
  std::atomic<bool> ended = false;  // it listens no more
  std::mutex guard;
  std::optional<fs::path> folder;
  std::optional<run::MetricsFile> metrics;  // read on from where the last answer ended

  /// What the files say now, as `write` writes it.
  template <class Write>
  void answer(httplib::Response& response, const char* type, bool histograms, const Write& write) {
    try {
      const std::string version = versions_of(*folder);
      run::RunReportOptions options;
      if (!histograms) options.most_histograms = 0;
      options.held_out.reset();
      options.metrics = &*metrics;
      std::array reports = {run::report_of(*folder, options)};
      reports[0].no_weights = reports[0].no_held_out =
          "Follows when the run has ended: `bantam report " + folder->string() + "`.";
      response.set_content(write(reports, version), type);
    } catch (const std::exception& error) {  // a file is being replaced: the next request finds it
      response.status = 503;
      response.set_content(error.what(), "text/plain");
    }
  }
  void send_page(const httplib::Request&, httplib::Response& response) {
    const std::lock_guard lock(guard);
    if (!folder) return response.set_content(kStarting, "text/html");
    answer(response, "text/html", true, [](std::span<const run::RunReport> reports, const std::string& version) {
      return run_page(reports, {.version = version});
    });
  }
  void send_news(const httplib::Request& request, httplib::Response& response) {
    const std::lock_guard lock(guard);
    const std::string seen = request.get_param_value("seen");
    if (!folder || seen == versions_of(*folder)) {
      response.status = 204;
      return;
    }
    const bool histograms = !seen.ends_with("." + version_of(*folder / "histograms.jsonl"));
    answer(response, "application/json", histograms,
           [histograms](std::span<const run::RunReport> reports, const std::string& version) {
             return json_text(run_page_news(reports, version, histograms));
           });
  }
  /// A page of another site must not read the run by a name that it points at this machine.
  bool is_own(const httplib::Request& request) const {
    const std::string host = request.get_header_value("Host");
    return host == fmt::format("{}:{}", kAddress, port) || host == fmt::format("localhost:{}", port);
  }
  bool bind() {
    // The library's own choice lets two programs share a port.
    server.set_socket_options([](int socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    if (port != 0) return server.bind_to_port(kAddress, port);
    port = server.bind_to_any_port(kAddress);
    return port > 0;
  }
  void listen() {
    server.new_task_queue = [] { return new httplib::ThreadPool(2); };
    server.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      response.set_header("Cache-Control", "no-store");
      if (is_own(request)) return httplib::Server::HandlerResponse::Unhandled;
      response.status = 403;
      return httplib::Server::HandlerResponse::Handled;
    });
    server.Get("/",
               [this](const httplib::Request& request, httplib::Response& response) { send_page(request, response); });
    server.Get("/data.json",
               [this](const httplib::Request& request, httplib::Response& response) { send_news(request, response); });
    const BlockedSignals blocked;
    thread = std::thread([this] {
      server.listen_after_bind();
      ended = true;
    });
  }
};

RunServer::RunServer(int port) : impl_(std::make_unique<Impl>()) {
  impl_->port = port;
  if (!impl_->bind())
    throw ConfigError(fmt::format("--serve: port {} of {} cannot be had: another program uses it, or it is reserved",
                                  port, kAddress));
  impl_->listen();
}

RunServer::~RunServer() {
  while (!impl_->server.is_running() && !impl_->ended) std::this_thread::yield();  // stop() before it listens is lost
  impl_->server.stop();
  impl_->thread.join();
}

int RunServer::port() const { return impl_->port; }

void RunServer::follow(const fs::path& folder) {
  const std::lock_guard lock(impl_->guard);
  impl_->folder = folder;
  impl_->metrics.emplace(folder / "metrics.jsonl");
}

}  // namespace bantam::cli
