package bag

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/store"
)

// Options are the choices of Open.
type Options struct {
	Store                store.Store // below the recordings: the dataset closes it
	URI, Format, Version string
	Budget               int64 // bytes of columns, timestamps and indexes; 0 = 256 MiB

	Clock      string        // "header", "publish" or "log" for every stream; "" = header where it is plausible, else log
	Tolerance  time.Duration // timestamps that step back by at most this are sorted; 0 = 100 ms
	Anchor     string        // a stream or topic whose rows are the episode's own; "" = the first camera, else the steadiest
	Task       string        // a text topic that holds the task; "" = a topic of a usual name, else the recording's notes
	EpisodesBy string        // "file", "gap:<seconds>", "events:<topic>", "table:<from>-<to>,…", "steps"
	Scan       string        // "auto", "all" or "sample": how much is read to settle the streams
	Strict     bool          // damage is an error
	Map        *robocache.Mapping

	IgnoreIndex bool // of the files: they are scanned. For who opens them
}

// Known names the format options that ParseOptions reads.
var Known = map[string]string{
	"clock":        "header, publish or log: the clock of every stream (default: header where the type has one and it is plausible, else log)",
	"tolerance":    "timestamps that step back by at most so many seconds are sorted (default 0.1); more is an error, or with episodes_by=steps a new episode",
	"anchor":       "the stream or topic whose rows are the episode's own (default: the first camera, else the steadiest stream of at most 60 Hz)",
	"task":         "the text topic that holds the task (default: /task, /language_instruction, /instruction or /prompt)",
	"episodes_by":  "file (default), gap:<seconds>, events:<topic> (start and stop), table:<from>-<to>,… (seconds from the start, or ns since the epoch), or steps",
	"scan":         "auto (default), all or sample: whether every message is read at opening to settle streams, lengths and clocks; auto does so below 64 MiB",
	"damaged":      "skip (default) or error: what becomes of damaged chunks and cut files",
	"ignore_index": "true: the summary of the files is not believed, they are scanned",
}

// ParseOptions reads the options of a format over recordings, of the file in a store, or with file "" of its root.
func ParseOptions(open robocache.OpenOptions, s store.Store, file, format string) (Options, error) {
	o := Options{Budget: reader.Budget(open, defaultBudget, 0), Map: open.Map, Store: s, URI: s.URI(), Format: format, Version: "0"}
	if file != "" {
		o.URI = strings.TrimRight(o.URI, "/") + "/" + file
	}
	all := map[string]string{}
	if open.Map != nil {
		maps.Copy(all, open.Map.Options)
		o.Anchor, o.Task = open.Map.Clock, open.Map.Task
	}
	maps.Copy(all, open.Options)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		v := all[k]
		bad := func(want string) error {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "open", Msg: "option " + k, Want: want, Got: strconv.Quote(v)}
		}
		switch k {
		case "clock":
			if o.Clock = v; v != Header && v != Publish && v != Log {
				return o, bad("header, publish or log")
			}
		case "tolerance":
			s, err := strconv.ParseFloat(v, 64)
			if err != nil || !(s >= 0 && s < 1e6) {
				return o, bad("seconds")
			}
			o.Tolerance = max(1, time.Duration(s*1e9))
		case "anchor":
			o.Anchor = v
		case "task":
			o.Task = v
		case "episodes_by":
			o.EpisodesBy = v
		case "scan":
			if o.Scan = v; v != "auto" && v != "all" && v != "sample" {
				return o, bad("auto, all or sample")
			}
		case "damaged":
			if v != "skip" && v != "error" {
				return o, bad("skip or error")
			}
			o.Strict = v == "error"
		case "ignore_index":
			var err error
			if o.IgnoreIndex, err = strconv.ParseBool(v); err != nil {
				return o, bad("true or false")
			}
		}
	}
	return o, nil
}
