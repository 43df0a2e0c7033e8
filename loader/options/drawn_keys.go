package options

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// DrawnKey is a key of the batch whose streams or rows are drawn at random for each sample.
type DrawnKey struct {
	Key     string
	Streams []string // one is drawn for each sample
	IsGoal  bool     // the row is drawn from those after the sample's
}

// Choices is a JSON object {key: [stream, …]}: keys of the batch that hold one of several streams.
// The order of the keys is kept.
type Choices []DrawnKey

// UnmarshalJSON reads {key: [stream, …], …}.
func (c *Choices) UnmarshalJSON(b []byte) (err error) {
	read := func(key string, raw json.RawMessage) (x DrawnKey, err error) {
		x.Key = key
		return x, json.Unmarshal(raw, &x.Streams)
	}
	*c, err = readKeys(b, "choose", "a list of streams", read)
	return err
}

// MarshalJSON writes the object in its order.
func (c Choices) MarshalJSON() ([]byte, error) {
	return writeKeys(c, func(x *DrawnKey) (string, any) { return x.Key, x.Streams })
}

// Goals is a JSON object {key: stream}: keys of the batch that hold a later row of a stream. The
// order of the keys is kept.
type Goals []DrawnKey

// UnmarshalJSON reads {key: stream, …}.
func (g *Goals) UnmarshalJSON(b []byte) (err error) {
	read := func(key string, raw json.RawMessage) (x DrawnKey, err error) {
		x = DrawnKey{Key: key, Streams: make([]string, 1), IsGoal: true}
		return x, json.Unmarshal(raw, &x.Streams[0])
	}
	*g, err = readKeys(b, "goal", "a stream", read)
	return err
}

// MarshalJSON writes the object in its order.
func (g Goals) MarshalJSON() ([]byte, error) {
	return writeKeys(g, func(x *DrawnKey) (string, any) { return x.Key, x.Streams[0] })
}

// DrawnKeys returns the keys of Choose and Goal, in this order.
func (w *Windows) DrawnKeys() []DrawnKey {
	return slices.Concat([]DrawnKey(w.Choose), []DrawnKey(w.Goal))
}

// DrawnKey returns the drawn key of the batch with a name, or nil.
func (w *Windows) DrawnKey(key string) *DrawnKey {
	for _, keys := range [][]DrawnKey{w.Choose, w.Goal} {
		for i := range keys {
			if keys[i].Key == key {
				return &keys[i]
			}
		}
	}
	return nil
}

// IsChoice reports whether a key of Choose selects from a stream.
func (w *Windows) IsChoice(stream string) bool {
	return slices.ContainsFunc(w.Choose, func(x DrawnKey) bool {
		return slices.Contains(x.Streams, stream)
	})
}

// drawnStreams returns the streams of some drawn keys.
func drawnStreams(keys []DrawnKey) (streams []string) {
	for _, x := range keys {
		streams = append(streams, x.Streams...)
	}
	return streams
}

// checkDrawn rejects drawn keys that no dataset could deliver.
func (c *Config) checkDrawn() error {
	seen := map[string]bool{}
	for _, x := range c.DrawnKeys() {
		option := "choose"
		if x.IsGoal {
			option = "goal"
		}
		streams := slices.Sorted(slices.Values(x.Streams))
		switch {
		case x.Key == "" || seen[x.Key] || c.Vectors.Of(x.Key) != nil:
			return Misuse(option, "keys that no other option makes", fmt.Sprintf("%q", x.Key))
		case len(streams) == 0 || streams[0] == "" ||
			len(slices.Compact(streams)) < len(x.Streams):
			return Misuse(option+" of "+x.Key, "streams, each once", fmt.Sprint(x.Streams))
		}
		seen[x.Key] = true
		if c.Native.Of(x.Key) != nil {
			return robocache.Unsupported("loader", robocache.Where{"stream": x.Key},
				"%s of a key that %s makes", robocache.Option("windows"), option).
				WithHint("Pass %s or %s.", robocache.Option("delta_indices"),
					robocache.Option("delta_timestamps"))
		}
	}
	return nil
}

// keepDrawn returns the drawn keys whose streams all exist.
func keepDrawn[T ~[]DrawnKey](keys T, has func(stream string) bool) T {
	return slices.DeleteFunc(slices.Clone(keys), func(x DrawnKey) bool {
		return slices.ContainsFunc(x.Streams, func(s string) bool { return !has(s) })
	})
}
