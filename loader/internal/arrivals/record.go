package arrivals

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

// Kinds of records.
const (
	headerKind   = "log"
	arrivalKind  = "arrival"
	boundaryKind = "boundary"
)

// logVersion is the version of the logs that are written.
const logVersion = 1

// maxRecord bounds a line of a log in bytes.
const maxRecord = 1 << 20

// Arrival is an episode that entered the dataset.
type Arrival struct {
	ID    string `json:"id"`    // file of the episode, or its index
	Index int64  `json:"index"` // index of the episode in the log's numbering
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes,omitempty"` // size of its file, if it has its own
	Time  int64  `json:"time"`            // time at which it was found, in ns since 1970
	Fails bool   `json:"fails,omitempty"` // the expression of the rule is false
	// Version is the policy version; nil if the rule names none or the episode has none.
	Version *float64 `json:"version,omitempty"`
}

// Boundary states what an epoch of a run sees.
type Boundary struct {
	Run      string `json:"run"`
	Epoch    int64  `json:"epoch"`
	Arrivals int    `json:"arrivals"`          // number of arrivals before it
	Samples  int64  `json:"samples,omitempty"` // samples of the epoch; 0: all of its episodes
}

// header is the first record of a log.
type header struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Terms
}

// Terms are the parts of a rule whose results are recorded. A log has one set of terms.
type Terms struct {
	Where  string `json:"where,omitempty"`  // expression of package query
	Policy string `json:"policy,omitempty"` // stream or note that holds the policy version
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeRecord returns the line of a record of a kind, with its line break.
func encodeRecord(kind string, content any) ([]byte, error) {
	body, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	// The kind is the first member of the object.
	text := append([]byte(`{"kind":"`+kind+`",`), body[1:]...)
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, castagnoli), text), nil
}

// decodeRecord returns the content of a line without its line break: a *header, *Arrival or
// *Boundary. ok is false if the line is damaged.
func decodeRecord(line []byte) (content any, ok bool) {
	sum, text, found := bytes.Cut(line, []byte(" "))
	if !found || len(sum) != 8 || len(text) > maxRecord {
		return nil, false
	}
	var raw [4]byte
	if _, err := hex.Decode(raw[:], sum); err != nil {
		return nil, false
	}
	want := uint32(raw[0])<<24 | uint32(raw[1])<<16 | uint32(raw[2])<<8 | uint32(raw[3])
	if crc32.Checksum(text, castagnoli) != want {
		return nil, false
	}
	var kind struct {
		Kind string `json:"kind"`
	}
	if json.Unmarshal(text, &kind) != nil {
		return nil, false
	}
	switch kind.Kind {
	case headerKind:
		content = &header{}
	case arrivalKind:
		content = &Arrival{}
	case boundaryKind:
		content = &Boundary{}
	default:
		return nil, false
	}
	return content, json.Unmarshal(text, content) == nil
}
