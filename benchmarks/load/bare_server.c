/* The least server that can confirm a durable publish: no topics, no queues, no checks. One thread takes what one round of
   epoll has brought, appends it to a file that was written through before, syncs once, and answers each PUBLISH of the round
   by its packet id. CONNECT is answered with CONNACK; whatever else comes is dropped.
   Called with a port and a file. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    FILE_BYTES = 64 << 20,
    CHUNK_BYTES = 1 << 20,
    ROUND_BYTES = 8 << 20,
    READ_BYTES = 256 << 10, /* of one connection in one round */
    PACKET_BYTES_MAX = 4096,
    CONNECTIONS_MAX = 1024, /* descriptors below this */
    EVENTS_MAX = 256,
    LENGTH_BYTES_MAX = 4,
    ANSWER_BYTES = 4,
    CONNECT = 0x10,
    PUBLISH = 0x30,
    KIND = 0xf0,
};

struct unread {
    int count;
    unsigned char bytes[PACKET_BYTES_MAX];
};

struct answer {
    int descriptor, first, end; /* a part of `answers` */
};

static unsigned char arrived[ROUND_BYTES];
static unsigned char answers[ROUND_BYTES];
static struct unread kept[CONNECTIONS_MAX];
static struct answer waiting[EVENTS_MAX];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int open_file(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) fail(path);
    for (off_t place = 0; place < FILE_BYTES; place += CHUNK_BYTES)
        if (pwrite(file, arrived, CHUNK_BYTES, place) != CHUNK_BYTES) fail("preallocate");
    if (fsync(file) != 0) fail("fsync");
    return file;
}

static int listen_at(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0) fail("socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0) fail("bind");
    if (listen(listener, 128) != 0) fail("listen");
    return listener;
}

static void accept_one(int poll, int listener) {
    int one = 1, made = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (made < 0) return;
    if (made >= CONNECTIONS_MAX) {
        close(made);
        return;
    }
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    kept[made].count = 0;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = made};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, made, &event) != 0) fail("epoll_ctl");
}

/* The length of the packet that begins here, its head included; 0 while it is not whole. */
static int find_packet(const unsigned char *bytes, int count, int *head) {
    int length = 0;
    for (int index = 0; index < LENGTH_BYTES_MAX && index + 1 < count; index++) {
        length |= (bytes[index + 1] & 0x7f) << (7 * index);
        if (bytes[index + 1] < 0x80) {
            *head = index + 2;
            if (*head + length > PACKET_BYTES_MAX) exit(2);
            return *head + length <= count ? *head + length : 0;
        }
    }
    return 0;
}

/* Reads one connection behind the `used` bytes of this round; how many there are then. Its answers go behind `*ready`. */
static int take(int descriptor, int used, int *ready, int *publishes) {
    unsigned char *place = arrived + used;
    int old = kept[descriptor].count;
    memcpy(place, kept[descriptor].bytes, (size_t)old);
    ssize_t got = recv(descriptor, place + old, READ_BYTES - PACKET_BYTES_MAX, 0);
    if (got <= 0) {
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) close(descriptor);
        return used;
    }
    int end = old + (int)got, position = 0, head = 0, length;
    while ((length = find_packet(place + position, end - position, &head)) > 0) {
        unsigned char *packet = place + position, *answer = answers + *ready;
        if ((packet[0] & KIND) == CONNECT) {
            memcpy(answer, "\x20\x02\x00\x00", ANSWER_BYTES);
            *ready += ANSWER_BYTES;
        } else if ((packet[0] & KIND) == PUBLISH) {
            int topic = packet[head] << 8 | packet[head + 1];
            memcpy(answer, "\x40\x02", 2);
            memcpy(answer + 2, packet + head + 2 + topic, 2);
            *ready += ANSWER_BYTES;
            *publishes += 1;
        }
        position += length;
    }
    kept[descriptor].count = end - position;
    memcpy(kept[descriptor].bytes, place + position, (size_t)(end - position));
    return used + position;
}

static void store(int file, off_t *place, int used) {
    if (*place + used > FILE_BYTES) *place = 0;
    if (pwrite(file, arrived, (size_t)used, *place) != used) fail("pwrite");
    if (fdatasync(file) != 0) fail("fdatasync");
    *place += used;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    int file = open_file(arguments[2]), listener = listen_at(atoi(arguments[1])), poll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[EVENTS_MAX], event = {.events = EPOLLIN, .data.fd = listener};
    if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event) != 0) fail("epoll");
    off_t place = 0;
    for (;;) {
        int found = epoll_wait(poll, events, EVENTS_MAX, -1), used = 0, ready = 0, publishes = 0, waiters = 0;
        for (int index = 0; index < found && used + READ_BYTES <= ROUND_BYTES; index++) {
            int descriptor = events[index].data.fd, first = ready;
            if (descriptor == listener) {
                accept_one(poll, listener);
                continue;
            }
            used = take(descriptor, used, &ready, &publishes);
            if (ready > first) waiting[waiters++] = (struct answer){descriptor, first, ready};
        }
        if (publishes > 0) store(file, &place, used);
        for (int index = 0; index < waiters; index++) {
            struct answer *one = &waiting[index];
            ssize_t length = one->end - one->first;
            ssize_t sent = send(one->descriptor, answers + one->first, (size_t)length, MSG_NOSIGNAL);
            if (sent != length && errno != EPIPE && errno != ECONNRESET) fail("send");
        }
    }
}
