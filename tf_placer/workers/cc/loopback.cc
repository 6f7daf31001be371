// Preloaded into a worker process: what would listen on every interface listens on the loopback.
//
// A TensorFlow server binds "any" whatever address its cluster gives it, asks nobody who they are, and runs the graph
// that it is sent. An IPv6 "any" becomes 127.0.0.1 too, as IPv4 in IPv6: that is the address which workers have for
// each other.

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

extern "C" int bind(int socket, const struct sockaddr* address, socklen_t size) {
  typedef int (*Bind)(int, const struct sockaddr*, socklen_t);
  // The next one: libc's, or that of a library which the user preloads.
  const Bind next = reinterpret_cast<Bind>(dlsym(RTLD_NEXT, "bind"));
  if (address != nullptr && address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    sockaddr_in changed;
    memcpy(&changed, address, sizeof changed);
    if (changed.sin_addr.s_addr == htonl(INADDR_ANY)) {
      changed.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      return next(socket, reinterpret_cast<const sockaddr*>(&changed), sizeof changed);
    }
  }
  if (address != nullptr && address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 changed;
    memcpy(&changed, address, sizeof changed);
    const bool is_any = IN6_IS_ADDR_UNSPECIFIED(&changed.sin6_addr);
    const bool is_any_in_ipv4 = IN6_IS_ADDR_V4MAPPED(&changed.sin6_addr) && changed.sin6_addr.s6_addr32[3] == 0;
    if (is_any || is_any_in_ipv4) {
      inet_pton(AF_INET6, "::ffff:127.0.0.1", &changed.sin6_addr);
      return next(socket, reinterpret_cast<const sockaddr*>(&changed), sizeof changed);
    }
  }
  return next(socket, address, size);
}
