/* A switch that delays packets between TUN devices, one per network namespace.

   cc -O2 -o switch switch.c; ./switch CONFIG SOCKET PRIORITY

   CONFIG has a line per host and a line per direction of a link:
     host INDEX NAMESPACE IPV4
     link FROM TO DELAY_US RATE_BIT_S QUEUE_BYTES JITTER_US LOSS_PPM     (rate 0: unlimited)
   SOCKET is a datagram socket: "reload" reads the links again, "stats" answers counters as JSON.
   PRIORITY is that of SCHED_FIFO, 0 for none. SIGTERM ends it.

   Each direction of a link is a queue in front of a line: a packet waits until those before it are
   sent, then takes length / rate to send and the delay to travel. Jitter never reorders. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define HOSTS 256
#define PACKET 65536
#define BATCH 32
#define MOST_BYTES (256L << 20) /* in flight, over all links */
#define MOST_LEAD 150000        /* ns that a wake-up is taken to last at most */

struct link {
    int64_t delay, queue, jitter; /* ns; the queue is as long as it takes to send */
    double ns_per_byte;
    uint32_t loss; /* per million */
    int64_t busy;  /* when the line is free again */
    int64_t last;  /* when the last packet arrives */
};
struct packet {
    int64_t due;
    uint64_t number;
    int to, length;
    unsigned char data[];
};

static struct link (*links)[HOSTS];
static int tun[HOSTS], hosts;
static uint32_t address[HOSTS];
static char namespace[HOSTS][128];
static int by_octet[256];
static const char *config;

static struct packet **heap;
static int heap_size, heap_room;
static uint64_t packets;

static uint64_t received, sent, bytes, dropped_queue, dropped_loss, dropped_unroutable, dropped_write;
static int64_t in_flight, late_sum, late_max, lead;
static uint64_t late_count;
static int realtime;
static volatile sig_atomic_t ended;

static void end(int signal) { (void)signal; ended = 1; }

static void die(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Uniform in [0, 1); xorshift64*. */
static double uniform(void) {
    static uint64_t x = 88172645463325252ULL;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    return (double)((x * 2685821657736338717ULL) >> 11) / 9007199254740992.0;
}

static int before(const struct packet *a, const struct packet *b) {
    return a->due < b->due || (a->due == b->due && a->number < b->number);
}

static void push(struct packet *p) {
    if (heap_size == heap_room) {
        heap_room = heap_room ? heap_room * 2 : 4096;
        heap = realloc(heap, heap_room * sizeof *heap);
        if (!heap) die("no memory for %d packets", heap_room);
    }
    int i = heap_size++;
    while (i) {
        int parent = (i - 1) / 2;
        if (!before(p, heap[parent])) break;
        heap[i] = heap[parent];
        i = parent;
    }
    heap[i] = p;
}

static struct packet *pop(void) {
    struct packet *first = heap[0], *p = heap[--heap_size];
    int i = 0;
    for (;;) {
        int child = 2 * i + 1;
        if (child >= heap_size) break;
        if (child + 1 < heap_size && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], p)) break;
        heap[i] = heap[child];
        i = child;
    }
    if (heap_size) heap[i] = p;
    return first;
}

/* Reads hosts (only when starting) and links; 0, or the number of the line that is wrong. */
static int read_config(int starting, char *why, size_t room) {
    static struct link fresh[HOSTS][HOSTS];
    char line[512], name[128], ip[64];
    int number = 0;
    memset(fresh, 0, sizeof fresh);
    FILE *file = fopen(config, "r");
    if (!file) {
        snprintf(why, room, "%s: %s", config, strerror(errno));
        return 1;
    }
    while (fgets(line, sizeof line, file)) {
        int a, b;
        double delay, rate, queue, jitter, loss;
        struct in_addr parsed;
        number++;
        if (*line == '\n' || *line == '#') continue;
        if (sscanf(line, "host %d %127s %63s", &a, name, ip) == 3 && a >= 0 && a < HOSTS &&
            inet_aton(ip, &parsed)) {
            if (!starting) continue;
            address[a] = parsed.s_addr;
            by_octet[ntohl(parsed.s_addr) & 255] = a;
            strcpy(namespace[a], name);
            if (a >= hosts) hosts = a + 1;
        } else if (sscanf(line, "link %d %d %lf %lf %lf %lf %lf", &a, &b, &delay, &rate, &queue,
                          &jitter, &loss) == 7 &&
                   a >= 0 && a < HOSTS && b >= 0 && b < HOSTS) {
            struct link *l = &fresh[a][b];
            l->delay = delay * 1e3;
            l->ns_per_byte = rate > 0 ? 8e9 / rate : 0;
            l->queue = queue * l->ns_per_byte;
            l->jitter = jitter * 1e3;
            l->loss = loss;
        } else {
            snprintf(why, room, "%s:%d: neither a host nor a link: %.200s", config, number, line);
            fclose(file);
            return number;
        }
    }
    fclose(file);
    for (int a = 0; a < HOSTS; a++)
        for (int b = 0; b < HOSTS; b++) {
            fresh[a][b].busy = links[a][b].busy;
            fresh[a][b].last = links[a][b].last;
        }
    memcpy(links, fresh, sizeof fresh);
    return 0;
}

/* A device made while in a namespace belongs there. */
static int open_tun(const char *name) {
    char path[160];
    snprintf(path, sizeof path, "/run/netns/%.127s", name);
    int ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || setns(ns, CLONE_NEWNET)) die("%s: %s", path, strerror(errno));
    close(ns);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    strcpy(request.ifr_name, "data0");
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request))
        die("/dev/net/tun in %s: %s", name, strerror(errno));
    return fd;
}

static int open_control(const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at.sun_path) die("%s: too long", path);
    strcpy(at.sun_path, path);
    unlink(path);
    umask(0177);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at)) die("%s: %s", path, strerror(errno));
    return fd;
}

static void control(int fd) {
    struct sockaddr_un from;
    socklen_t size = sizeof from;
    char order[16] = "", answer[1024] = "ok";
    ssize_t length = recvfrom(fd, order, sizeof order - 1, 0, (struct sockaddr *)&from, &size);
    if (length < 0) return;
    if (!strcmp(order, "reload")) {
        char why[600];
        if (read_config(0, why, sizeof why)) snprintf(answer, sizeof answer, "%s", why);
    } else if (!strcmp(order, "stats")) {
        struct rusage use;
        getrusage(RUSAGE_SELF, &use);
        double cpu = use.ru_utime.tv_sec + use.ru_stime.tv_sec +
                     (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
        snprintf(answer, sizeof answer,
                 "{\"pid\":%d,\"realtime\":%s,\"received\":%lu,\"sent\":%lu,"
                 "\"bytes\":%lu,\"dropped_queue\":%lu,\"dropped_loss\":%lu,"
                 "\"dropped_unroutable\":%lu,\"dropped_write\":%lu,\"waiting\":%d,"
                 "\"late_mean_us\":%.1f,\"late_max_us\":%.1f,\"lead_us\":%.1f,\"cpu_seconds\":%.3f}",
                 getpid(), realtime ? "true" : "false", received, sent, bytes, dropped_queue,
                 dropped_loss, dropped_unroutable, dropped_write, heap_size,
                 late_count ? late_sum / 1e3 / late_count : 0, late_max / 1e3, lead / 1e3, cpu);
        late_sum = late_max = 0, late_count = 0;
    } else
        strcpy(answer, "neither reload nor stats");
    sendto(fd, answer, strlen(answer), MSG_DONTWAIT, (struct sockaddr *)&from, size);
}

static void deliver(int to, const void *data, int length) {
    if (write(tun[to], data, length) < 0)
        dropped_write++;
    else
        sent++;
}

static void take(int from, const unsigned char *data, int length) {
    received++;
    bytes += length;
    uint32_t target;
    if (length < 20 || data[0] >> 4 != 4) {
        dropped_unroutable++;
        return;
    }
    memcpy(&target, data + 16, 4);
    int to = by_octet[ntohl(target) & 255];
    if (to < 0 || address[to] != target || to == from || tun[to] < 0) {
        dropped_unroutable++;
        return;
    }
    struct link *l = &links[from][to];
    if (l->loss && uniform() * 1e6 < l->loss) {
        dropped_loss++;
        return;
    }
    int64_t at = now(), start = at;
    if (l->ns_per_byte > 0) {
        int64_t free_at = l->busy > at ? l->busy : at;
        if (free_at - at > l->queue) {
            dropped_queue++;
            return;
        }
        start = l->busy = free_at + (int64_t)(length * l->ns_per_byte);
    }
    if (in_flight + length > MOST_BYTES) {
        dropped_queue++;
        return;
    }
    int64_t due = start + l->delay - lead; /* it has waited for us to wake up, too */
    if (l->jitter) due += (int64_t)((uniform() * 2 - 1) * l->jitter);
    if (due < l->last) due = l->last;
    l->last = due;
    if (due <= at && !heap_size) {
        deliver(to, data, length);
        return;
    }
    struct packet *p = malloc(sizeof *p + length);
    if (!p) {
        dropped_queue++;
        return;
    }
    *p = (struct packet){.due = due, .number = packets++, .to = to, .length = length};
    memcpy(p->data, data, length);
    in_flight += length;
    push(p);
}

int main(int count, char **values) {
    if (count != 4) die("usage: %s CONFIG SOCKET PRIORITY", values[0]);
    char why[600];
    config = values[1];
    memset(by_octet, -1, sizeof by_octet);
    for (int i = 0; i < HOSTS; i++) tun[i] = -1;
    links = calloc(HOSTS, sizeof *links);
    if (!links) die("no memory for links");
    if (read_config(1, why, sizeof why)) die("%s", why);

    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < hosts; i++)
        if (*namespace[i]) tun[i] = open_tun(namespace[i]);
    if (setns(home, CLONE_NEWNET)) die("back to the first namespace: %s", strerror(errno));
    close(home);

    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, 0);
    sigaction(SIGINT, &action, 0);
    prctl(PR_SET_TIMERSLACK, 1);
    mlockall(MCL_CURRENT | MCL_FUTURE);
    struct sched_param priority = {.sched_priority = atoi(values[3])};
    if (priority.sched_priority) realtime = !sched_setscheduler(0, SCHED_FIFO, &priority);
    int orders = open_control(values[2]);

    static unsigned char buffer[PACKET];
    struct pollfd ready[HOSTS + 1];
    while (!ended) {
        int64_t t = now();
        while (heap_size && heap[0]->due - lead <= t) {
            struct packet *p = pop();
            int64_t late = t - p->due;
            late_sum += late, late_count++;
            if (late > late_max) late_max = late;
            deliver(p->to, p->data, p->length);
            in_flight -= p->length;
            free(p);
            t = now();
        }
        struct timespec wait = {.tv_sec = 1};
        int64_t target = 0;
        if (heap_size) {
            target = heap[0]->due - lead;
            int64_t left = target - now();
            if (left < 0) left = 0;
            wait = (struct timespec){left / 1000000000, left % 1000000000};
        }
        for (int i = 0; i < hosts; i++)
            ready[i] = (struct pollfd){.fd = tun[i], .events = POLLIN};
        ready[hosts] = (struct pollfd){.fd = orders, .events = POLLIN};
        int n = ppoll(ready, hosts + 1, &wait, 0);
        if (n == 0 && heap_size) {
            /* Waking up takes its time, much the same each time: wake up that much earlier. */
            int64_t error = now() - target;
            if (error > MOST_LEAD) error = MOST_LEAD;
            lead += (error - lead) / 16;
        }
        for (int i = 0; n > 0 && i < hosts; i++) {
            if (!ready[i].revents) continue;
            for (int k = 0; k < BATCH; k++) {
                ssize_t length = read(tun[i], buffer, sizeof buffer);
                if (length <= 0) {
                    /* A device that is gone would be "ready" for ever, at real-time priority. */
                    if (length == 0 || (errno != EAGAIN && errno != EINTR)) {
                        fprintf(stderr, "%s: data0: %s\n", namespace[i], strerror(errno));
                        close(tun[i]);
                        tun[i] = -1;
                    }
                    break;
                }
                take(i, buffer, length);
            }
        }
        if (n > 0 && ready[hosts].revents) control(orders);
    }
    unlink(values[2]);
    return 0;
}
