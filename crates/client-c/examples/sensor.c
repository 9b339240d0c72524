/* A sensor that sends a reading each interval to a collector, which may be away: routers store readings for as long as
   they are worth something.

   cc sensor.c $(pkg-config --cflags --libs whimbrel) -o sensor
   sensor COLLECTOR-NAME INTERVAL-MS COUNT [SOCKET] */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "whimbrel.h"

/* A real sensor is read here: the load of this machine, in thousandths. */
static long reading(void) {
    double load[1] = {0};
    return getloadavg(load, 1) == 1 ? (long)(load[0] * 1000) : -1;
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int fail(const char *what) {
    fprintf(stderr, "sensor: %s: %s\n", what, whimbrel_error());
    return 1;
}

int main(int count, char **arguments) {
    whimbrel host;
    whimbrel_name collector;
    if (count < 4) {
        fprintf(stderr, "sensor COLLECTOR-NAME INTERVAL-MS COUNT [SOCKET]\n");
        return 2;
    }
    if (whimbrel_name_parse(arguments[1], &collector) != WHIMBREL_OK) return fail("the collector's name");
    if (whimbrel_attach(count > 4 ? arguments[4] : NULL, 0, &host) != WHIMBREL_OK) return fail("attach");
    long interval = atol(arguments[2]), left = atol(arguments[3]), next = now_ms();
    /* A reading of an hour ago is of no use to anybody. */
    whimbrel_options options = {.storage = "1 h"};
    uint32_t transfer = 0;
    while (left > 0 || transfer != 0) {
        if (transfer == 0 && now_ms() >= next) {
            char text[80];
            int length = snprintf(text, sizeof text, "{\"load\": %ld, \"number\": %ld}\n", reading(), left);
            if (whimbrel_send_bytes(host, &collector, (const uint8_t *)text, (size_t)length, "reading.json",
                                    &options, &transfer) != WHIMBREL_OK)
                return fail("send");
            next += interval;
            left--;
        }
        /* This is the program's own loop: it may watch other descriptors, too. */
        struct pollfd watched = {.fd = whimbrel_fd(host), .events = POLLIN};
        long pause = next - now_ms();
        poll(&watched, 1, transfer != 0 ? 1000 : (int)(pause > 0 ? pause : 0));
        if (whimbrel_process(host) != WHIMBREL_OK) return fail("the host");
        if (transfer == 0) continue;
        switch (whimbrel_sent(host, transfer)) {
        case WHIMBREL_AGAIN:
            break;
        case WHIMBREL_OK:
            printf("the network has reading %ld\n", left + 1);
            whimbrel_cancel(host, transfer);
            transfer = 0;
            break;
        default:
            return fail("the reading");
        }
    }
    whimbrel_detach(host);
    return 0;
}
