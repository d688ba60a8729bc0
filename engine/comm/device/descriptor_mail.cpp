// Datagrams over an abstract Unix socket.
#include "bantam/engine/comm/device/descriptor_mail.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "bantam/base/error.h"
#include "bantam/base/plain_words.h"

namespace bantam {
namespace {

struct Header {
  std::uint32_t from = 0;
  std::uint64_t run = 0;
};

/// The address of an abstract name, which begins with a zero that is not in `name`.
socklen_t address_of(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::size_t bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), bytes);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

/// Room for a letter's control message, aligned as the system wants it.
struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * DescriptorMail::kMost)> bytes{};
};

}  // namespace

DescriptorMail::DescriptorMail() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // Bound without a name, the system chooses one.
  if (!socket_ || ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sa_family_t)) != 0)
    throw Error(fmt::format("cannot open a Unix socket: {}", reason_text(errno)));
  socklen_t bytes = sizeof(address);
  if (::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
    throw Error(fmt::format("cannot name a Unix socket: {}", reason_text(errno)));
  name_.assign(address.sun_path + 1, bytes - offsetof(sockaddr_un, sun_path) - 1);
}

bool DescriptorMail::send(const std::string& to, std::uint32_t from, std::uint64_t run,
                          std::span<const FileDescriptor> descriptors) {
  if (descriptors.size() > kMost)
    throw Error(fmt::format("a letter of {} descriptors, at most {}", descriptors.size(), kMost));
  sockaddr_un address;
  Header header{.from = from, .run = run};
  iovec body{&header, sizeof(header)};
  Control control;
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = address_of(to, address);
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
  for (std::size_t i = 0; i < descriptors.size(); ++i) {
    const int number = descriptors[i].get();
    std::memcpy(CMSG_DATA(part) + i * sizeof(int), &number, sizeof(int));
  }
  if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) >= 0) return true;
  if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS || errno == EINTR) return false;
  throw Error(fmt::format("cannot send descriptors to another process: {}", reason_text(errno)));
}

std::optional<DescriptorLetter> DescriptorMail::receive(double seconds) {
  pollfd wait{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&wait, 1, static_cast<int>(seconds * 1e3)) <= 0) return std::nullopt;
  Header header;
  iovec body{&header, sizeof(header)};
  Control control;
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  const ssize_t bytes = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  DescriptorLetter letter;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); bytes >= 0 && part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at + sizeof(int) <= part->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + at, sizeof(int));
      letter.descriptors.emplace_back(number);
    }
  }
  if (bytes != static_cast<ssize_t>(sizeof(header))) return std::nullopt;  // of nobody who knows us
  letter.from = header.from;
  letter.run = header.run;
  return letter;
}

}  // namespace bantam
