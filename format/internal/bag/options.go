package bag

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/recindex"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// Options are the options of Open.
type Options struct {
	Store                store.Store // store of the recordings; the dataset closes it
	URI, Format, Version string
	Budget               int64 // bytes of columns, timestamps and indexes; 0 means 256 MiB

	// "header", "publish" or "log" for every stream; "" means header if plausible, otherwise log
	Clock     string
	Tolerance time.Duration // timestamps that step back by at most this are sorted; 0 means 100 ms
	// stream or topic whose rows are those of the episode; "" means the first camera, otherwise the
	// steadiest stream
	Anchor string
	// text topic with the task; "" means a topic with a usual name, otherwise the recording's notes
	Task string
	// "file", "gap:<seconds>", "events:<topic>", "table:<from>-<to>,…", "steps"
	EpisodesBy string
	Scan       string // "auto", "all" or "sample": how much Open reads to determine the streams
	Strict     bool   // damage is an error
	Map        *robocache.Mapping

	// ChannelOrder is "rgb" or "bgr" by the key or topic of a camera. The key "" applies to cameras
	// whose encoding does not state the order.
	ChannelOrder map[string]string

	Index *recindex.Session // index of recordings, or nil

	IgnoreIndex bool // scan files instead of using their index; used by the caller that opens them
}

// Known lists the format options that ParseOptions accepts.
var Known = map[string]string{
	"clock": "header, publish or log: the clock of every stream (default: header where " +
		"the type has one and it is plausible, else log)",
	"tolerance": "timestamps that step back by at most so many seconds are sorted (default " +
		"0.1); more is an error, or with episodes_by=steps a new episode",
	"anchor": "the stream or topic whose rows are the episode's own (default: the first " +
		"camera, else the steadiest stream of at most 60 Hz)",
	"task": "the text topic that holds the task (default: /task, /language_instruction, " +
		"/instruction or /prompt)",
	"episodes_by": "file (default), gap:<seconds>, events:<topic> (start and stop), " +
		"table:<from>-<to>,… (seconds from the start, or ns since the epoch), or steps",
	"scan": "auto (default), all or sample: whether every message is read at opening to " +
		"settle streams, lengths and clocks; auto does so below 64 MiB",
	"damaged": "skip (default) or error: what becomes of damaged chunks and cut files",
	"channel_order": "rgb or bgr: the channels of raw images whose encoding (8UC3, 8UC4) does " +
		"not state their order (default rgb); " +
		"camera.image_raw=bgr overrides the encoding of some cameras",
	"ignore_index": "true: the summary of the files is not believed, they are scanned",
}

// ParseOptions parses the options of a format for recordings. The dataset is the file in a store,
// or its root if file is "".
func ParseOptions(
	open robocache.OpenOptions,
	s store.Store,
	file, format string,
) (o Options, err error) {
	defer guard.Into(&err)
	o = Options{
		Budget:  reader.Budget(open, defaultBudget, 0),
		Map:     open.Map,
		Store:   s,
		URI:     s.URI(),
		Format:  format,
		Version: "0",
	}
	if file != "" {
		o.URI = strings.TrimRight(o.URI, "/") + "/" + file
	}
	all := map[string]string{}
	if open.Map != nil {
		maps.Copy(all, open.Map.Options)
		o.Anchor, o.Task = open.Map.Clock, open.Map.Task
	}
	maps.Copy(all, open.Options)
	damaged := ""
	guard.Check(reader.Op("open").Settle(all, Known, map[string]reader.Set{
		"clock":        reader.Text(&o.Clock, Header, Publish, Log),
		"anchor":       reader.Text(&o.Anchor),
		"task":         reader.Text(&o.Task),
		"episodes_by":  reader.Text(&o.EpisodesBy),
		"scan":         reader.Text(&o.Scan, "auto", "all", "sample"),
		"damaged":      reader.Text(&damaged, "skip", "error"),
		"ignore_index": reader.Yes(&o.IgnoreIndex),
		"tolerance": func(v string) bool {
			s, err := strconv.ParseFloat(v, 64)
			o.Tolerance = max(1, time.Duration(s*1e9))
			return err == nil && s >= 0 && s < 1e6
		},
		"channel_order": func(v string) (ok bool) {
			o.ChannelOrder, ok = parseChannelOrder(v)
			return ok
		},
	}))
	o.Strict = damaged == "error"
	return o, nil
}
