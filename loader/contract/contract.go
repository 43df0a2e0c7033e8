// Package contract describes the observations that a policy was trained on, so that a running robot
// can be given the same ones (package live).
//
// A contract holds everything that turns messages into an observation, and nothing about files. It
// is JSON with deterministic bytes, and it is saved with the checkpoint. Loader.Contract makes it.
package contract

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
)

// Version is the version of the contract's format that this package writes. It reads all versions
// up to this one.
const Version = 1

// NumericsVersion counts the changes of kernels and image paths that changed a bit of a result.
const NumericsVersion = 1

// Contract describes observations.
type Contract struct {
	Version  int `json:"robocache_contract"`
	Numerics int `json:"numerics"` // NumericsVersion of the engine that made it
	// Options are the options of a loader that give these observations: keys, rate of ticks,
	// windows, alignment, images, and normalization with its numbers. They are causal.
	Options options.Config `json:"options"`
	Streams []Stream       `json:"streams"` // that the observation is made of
	Outputs []Output       `json:"outputs"` // the keys of an observation in their order
	// Statistics is a hash of the numbers of the normalization and of vectors.
	Statistics string `json:"statistics,omitempty"`
	Robot      string `json:"robot_type,omitempty"`
}

// Stream is one stream that an observation is made of: its values as they are pushed, and where
// they come from.
type Stream struct {
	robocache.Feature
	// Message is the topic that the stream was recorded from; nil if it was no message.
	Message *robocache.MessageSource `json:"message,omitempty"`
}

// Output is one key of an observation.
type Output struct {
	Key   string          `json:"key"`
	DType robocache.DType `json:"dtype"`
	Shape []int           `json:"shape"` // without the batch axis; -1: varies
	Kind  robocache.Kind  `json:"kind"`
	Unit  string          `json:"unit,omitempty"` // before normalization
}

// Seal sets the versions and the hash of the statistics.
func (c *Contract) Seal() error {
	c.Version, c.Numerics = Version, NumericsVersion
	c.Statistics = ""
	var numbers []byte
	if !c.Options.Normalize.IsZero() {
		b, err := json.Marshal(c.Options.Normalize)
		if err != nil {
			return err
		}
		numbers = b
	}
	if len(c.Options.Vectors) > 0 {
		b, err := json.Marshal(c.Options.Vectors)
		if err != nil {
			return err
		}
		numbers = append(numbers, b...)
	}
	if len(numbers) > 0 {
		hash := sha256.Sum256(numbers)
		c.Statistics = hex.EncodeToString(hash[:16])
	}
	return nil
}

// MarshalIndent returns the JSON of the contract. Equal contracts have equal bytes.
func (c *Contract) MarshalIndent() ([]byte, error) {
	b, err := json.MarshalIndent(c, "", " ")
	return append(b, '\n'), err
}

// maxBytes is the maximum size of a contract.
const maxBytes = 8 << 20

// Load reads a contract from a file.
func Load(path string) (*Contract, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, robocache.NotFound("contract", robocache.Where{"file": path}, "").WithCause(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, robocache.Temporary("contract", robocache.Where{"file": path}, "").
			WithCause(err)
	}
	c, err := Parse(b)
	return c, robocache.At(err, robocache.Where{"file": path})
}

// Parse reads and checks a contract.
func Parse(b []byte) (*Contract, error) {
	if len(b) > maxBytes {
		return nil, robocache.ResourceLimit("contract", nil, "the contract is too large").
			Expected(fmt.Sprintf("at most %d bytes", maxBytes), "")
	}
	var head struct {
		Version int             `json:"robocache_contract"`
		Options json.RawMessage `json:"options"`
	}
	if err := json.Unmarshal(b, &head); err != nil || head.Version == 0 {
		return nil, robocache.Malformed("contract", nil, "this is no contract").
			WithCause(err).WithHint("loader.contract().save(path) writes one.")
	}
	if head.Version > Version {
		return nil, robocache.Unsupported("contract", nil, "a contract of a newer version").
			Expected(fmt.Sprintf("version %d or less", Version), fmt.Sprint(head.Version)).
			WithHint("Install the version of robocache that wrote it, or a newer one.")
	}
	parsed, err := options.ParseConfig(head.Options)
	if err != nil {
		return nil, err
	}
	c := &Contract{}
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(c); err != nil {
		return nil, robocache.Malformed("contract", nil, "the contract cannot be read").
			WithCause(err)
	}
	c.Options = parsed
	return c, c.Validate()
}

// Validate rejects a contract that no observation can satisfy, or whose numbers were changed.
func (c *Contract) Validate() error {
	bad := func(format string, args ...any) error {
		return robocache.Malformed("contract", nil, format, args...)
	}
	a := c.Options.Align
	switch {
	case c.Numerics != NumericsVersion:
		return robocache.Unsupported("contract", nil,
			"the contract is of another version of the engine's numerics").
			Expected(fmt.Sprint(NumericsVersion), fmt.Sprint(c.Numerics)).
			WithHint("Train with this version, or deploy with the version that the policy was trained with.")
	case a == nil || a.HZ.Zero() || !a.Causal:
		return robocache.Misuse("contract", nil, "the alignment is not causal, or has no rate").
			WithHint("Train with %s and a rate, and take the contract of that loader.",
				robocache.Option("align", "causal"))
	case len(c.Streams) == 0 || len(c.Outputs) == 0:
		return bad("the contract has no streams or no outputs")
	}
	seen := map[string]bool{}
	for i := range c.Streams {
		s := &c.Streams[i]
		if s.Key == "" || seen[s.Key] {
			return bad("stream %q: expected a key, each once", s.Key)
		}
		seen[s.Key] = true
		if s.Key == "task" && s.Message != nil {
			return bad("the task comes from a message")
		}
		for _, n := range s.Shape[min(len(s.Shape), 1):] {
			if n < 0 || n > 1<<24 {
				return bad("stream %s has the shape %v", s.Key, s.Shape)
			}
		}
		if n := s.Elements(); n < 0 || n > 1<<28 {
			return bad("stream %s has the shape %v", s.Key, s.Shape)
		}
	}
	again := *c
	if err := again.Seal(); err != nil {
		return err
	}
	if again.Statistics != c.Statistics {
		return bad("the numbers of the normalization were changed: their hash differs")
	}
	return nil
}

// Stream returns the stream of a key, or nil.
func (c *Contract) Stream(key string) *Stream {
	i := slices.IndexFunc(c.Streams, func(s Stream) bool { return s.Key == key })
	if i < 0 {
		return nil
	}
	return &c.Streams[i]
}

// Check lists the reasons why a dataset cannot give these observations. The list is empty if it
// can. Streams are compared by key, kind, dtype, shape, names of channels and unit.
func (c *Contract) Check(ds robocache.Dataset) (problems []robocache.Finding) {
	info := ds.Info()
	report := func(key, format string, args ...any) {
		problems = append(problems, robocache.Finding{
			Severity: robocache.SeverityError, Code: "contract-mismatch",
			Where: robocache.Where{"stream": key}, Message: fmt.Sprintf(format, args...),
		})
	}
	for i := range c.Streams {
		want := &c.Streams[i].Feature
		if want.Key == "task" {
			continue
		}
		have := info.Feature(want.Key)
		if have == nil {
			report(want.Key, "the recording has no stream %s", want.Key)
			continue
		}
		isImage := func(k robocache.Kind) bool {
			return k == robocache.KindImage || k == robocache.KindVideo
		}
		switch {
		case have.Kind != want.Kind && !(isImage(have.Kind) && isImage(want.Kind)):
			report(want.Key, "the stream is of kind %s, expected %s", have.Kind, want.Kind)
		case isImage(want.Kind):
			if c.Options.DependsOnSize() && want.Height > 0 &&
				(have.Height != want.Height || have.Width != want.Width) {
				report(want.Key, "frames of %d×%d, expected %d×%d",
					have.Width, have.Height, want.Width, want.Height)
			}
		case have.DType != want.DType || !slices.Equal(have.Shape, want.Shape):
			report(want.Key, "rows of %v %v, expected %v %v",
				have.DType, have.Shape, want.DType, want.Shape)
		case !slices.Equal(have.ChannelNames(), want.ChannelNames()):
			report(want.Key, "channels %v, expected %v", have.ChannelNames(), want.ChannelNames())
		case have.Unit != want.Unit:
			report(want.Key, "the unit is %q, expected %q", have.Unit, want.Unit)
		}
	}
	return problems
}
