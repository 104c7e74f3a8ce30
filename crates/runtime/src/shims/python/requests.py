# Frames that come.


def check_process(process_id):
    """Ends a fork that was made past Python's hooks, and takes itself for this process."""
    if os.getpid() != process_id:
        os.write(2, b"a fork of the process went on as if it were the process, and was ended\n")
        os._exit(70)


class Requests:
    """The frames that come, in the order in which they come. Reads as much as there is at a time."""

    def __init__(self, nonce=None):
        self.nonce = nonce
        self.process_id = os.getpid()
        self.buffer = bytearray(REQUESTS_BYTES)
        self.begin = self.end = 0
        self.needed = 16
        self.arrivals = select.poll()
        self.arrivals.register(REQUESTS_FD, select.POLLIN)

    def next(self):
        """Kind and body of the next frame, if all of it has been read. The body holds until the next `fill`."""
        have = self.end - self.begin
        if have < 16:
            self.needed = 16
            return None
        size, kind, nonce = struct.unpack_from("<IIQ", self.buffer, self.begin)
        if self.nonce not in (None, nonce):
            os.write(2, b"something in the script wrote to the pipe that Gristmill's requests come from\n")
            os._exit(70)
        self.needed = 16 + size
        if have < self.needed:
            return None
        body = memoryview(self.buffer)[self.begin + 16 : self.begin + self.needed]
        self.begin += self.needed
        return kind, body

    def has_arrived(self):
        """Whether `fill` would not wait."""
        return bool(self.arrivals.poll(0))

    def fill(self):
        """Reads once; False at the end."""
        check_process(self.process_id)
        if self.begin == self.end:
            self.begin = self.end = 0
        if self.begin + self.needed > len(self.buffer):
            rest = self.buffer[self.begin : self.end]
            size = max(REQUESTS_BYTES, self.needed)
            # Frames that are longer come seldom: what was made for one is not kept for ever.
            if size != len(self.buffer):
                self.buffer = bytearray(size)
            self.buffer[: len(rest)] = rest
            self.begin, self.end = 0, len(rest)
        got = os.readv(REQUESTS_FD, [memoryview(self.buffer)[self.end :]])
        self.end += got
        return got > 0


