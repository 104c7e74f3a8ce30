# Outcomes on their way out.


class Outbox:
    """Finished outcomes on their way out. `flush` may be called by the threads that run the jobs and
    by the flusher; the lists only grow at their ends elsewhere, so a flush takes what is whole."""

    def __init__(self, nonce, words):
        self.nonce = nonce
        self.process_id = os.getpid()
        self.words = words
        self.lock = threading.Lock()
        self.begun_sent = 0
        self.values = []
        self.durations = []
        # Appended last: an entry here says that the lists above have theirs.
        self.numbers = []
        self.notes = []
        # What jobs said last of how far they are, by number.
        self.progress = {}
        # Whether the flusher sleeps until the bell rings.
        self.is_parked = False
        # What had ended by then has left.
        self.flushed_ns = now_ns()
        # The script's own files that Gristmill knows of, how many modules there were when they were looked for, and
        # when they are looked for again.
        self.files = set()
        self.modules = 0
        self.look_at_ns = 0

    def ring(self):
        """Wakes the flusher: something begins, or is left to be sent."""
        self.is_parked = False
        os.write(BELL_FD, b"\1\0\0\0\0\0\0\0")

    def note(self, note):
        self.notes.append(json.dumps(note).encode() + b"\n")

    def know_files(self):
        """The script's own files that are imported and were not known."""
        start = now_ns()
        self.modules = len(sys.modules)
        new = [file for file in own_files() if file not in self.files]
        self.files.update(new)
        end = now_ns()
        self.look_at_ns = end + LOOK_REST * (end - start)
        return new

    def note_imports(self):
        """Names what jobs have imported, so that its changes are noticed."""
        new = self.know_files() if len(self.files) < OWN_FILES_MAX else None
        if new:
            self.note({"imported": new})

    def has_unsent(self):
        return self.numbers or self.notes or self.progress or self.words[BEGUN] != self.begun_sent

    def flush(self):
        """Sends what there is; whether there was anything."""
        # Before the lock: a fork past Python's hooks has it as it was, and waits for ever for a thread that it has not.
        check_process(self.process_id)
        with self.lock:
            self.flushed_ns = now_ns()
            if len(sys.modules) != self.modules and self.flushed_ns >= self.look_at_ns:
                self.note_imports()
            # Notes are sent after the values that are older than they.
            numbers = self.numbers[:]
            notes = self.notes[:]
            count = len(numbers)
            begun = self.words[BEGUN]
            progress = self.progress
            if count == 0 and not notes and not progress and begun == self.begun_sent:
                return False
            if count:
                values = b"[" + b"\n,".join(self.values[:count]) + b"]"
                numbers = struct.pack("<%dI" % (2 * count), *numbers, *self.durations[:count])
                del self.values[:count], self.durations[:count], self.numbers[:count]
            else:
                values = numbers = b""
            notes_text = b"".join(notes)
            if progress:
                self.progress = {}
                notes_text += b"".join([json.dumps({"progress": said}).encode() + b"\n" for said in progress.values()])
            del self.notes[: len(notes)]
            self.begun_sent = begun
            size = 16 + len(numbers) + len(values) + len(notes_text)
            head = struct.pack("<IIQIIII", size, OUTCOMES, self.nonce, begun, count, len(values), 0)
            self.send(b"".join((head, numbers, values, notes_text)))
            return True

    def send(self, frame):
        check_process(self.process_id)
        view = memoryview(frame)
        while view:
            view = view[os.write(OUTCOMES_FD, view) :]

    def send_json(self, kind, body):
        data = json.dumps(body).encode()
        self.send(struct.pack("<IIQ", len(data), kind, self.nonce) + data)


