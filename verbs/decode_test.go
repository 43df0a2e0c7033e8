package verbs

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
)

// request has an option of each kind.
type request struct {
	URI         string `json:"-" arg:"URI"`
	Destination string `json:"-" arg:"[DST]"`
	Opening
	Text        string            `json:"text"`
	Decode      bool              `json:"decode"`
	SplitAtGaps *bool             `json:"split_at_gaps"`
	GOP         *int              `json:"gop"`
	Seconds     float64           `json:"seconds"`
	Seed        uint64            `json:"seed"`
	Jitter      time.Duration     `json:"jitter"`
	Keys        []string          `json:"keys"`
	Env         map[string]string `json:"env" hidden:"true"`
	Internal    int               `json:"-"`
}

func decode(text string, args ...string) (*request, error) {
	var options map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &options); err != nil {
		return nil, err
	}
	r := &request{}
	return r, Decode("verb", args, options, r)
}

func TestDecode(t *testing.T) {
	no, eight := false, 8
	for text, want := range map[string]request{
		`{}`:                          {},
		`{"text": null, "gop": null}`: {},
		`{"text": "a"}`:               {Text: "a"},
		`{"text": 50}`:                {Text: "50"},
		`{"text": [0, 3]}`:            {Text: "0,3"},
		`{"text": {"a": [1, true]}}`:  {Text: `{"a": [1, true]}`},
		`{"format": "mcap"}`:          {Opening: Opening{Format: "mcap"}},
		`{"options": {"b": 1, "a": "x"}}`: {
			Opening: Opening{Option: []string{"a=x", "b=1"}},
		},
		`{"option": ["a=x"]}`:         {Opening: Opening{Option: []string{"a=x"}}},
		`{"keys": "a,b"}`:             {Keys: []string{"a,b"}},
		`{"keys": ["a", "b"]}`:        {Keys: []string{"a", "b"}},
		`{"decode": true}`:            {Decode: true},
		`{"split_at_gaps": false}`:    {SplitAtGaps: &no},
		`{"gop": 8}`:                  {GOP: &eight},
		`{"gop": "8"}`:                {GOP: &eight},
		`{"seconds": 0.5, "seed": 7}`: {Seconds: 0.5, Seed: 7},
		`{"jitter": "2ms"}`:           {Jitter: 2 * time.Millisecond},
		`{"env": {"HF_HOME": "a,b", "HF_X": 1}}`: {
			Env: map[string]string{"HF_HOME": "a,b", "HF_X": "1"},
		},
	} {
		want.URI = "set"
		if got, err := decode(text, "set"); err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, want %+v, %v", text, got, want, err)
		}
	}
	if r, err := decode(`{}`, "set", "out"); err != nil || r.Destination != "out" {
		t.Error(r, err)
	}
}

func TestDecodeRejects(t *testing.T) {
	for text, want := range map[string]string{
		`{"decode": 3}`:           "decode=3: expected true or false",
		`{"split_at_gaps": "no"}`: `split_at_gaps="no": expected true or false`,
		`{"text": true}`:          "text=true: expected a value",
		`{"gop": "x"}`:            `gop: expected an integer, found "x"`,
		`{"gop": 3.0}`:            "gop: expected an integer, found 3.0",
		`{"gop": [1, 2]}`:         "gop: expected an integer, found [1, 2]",
		`{"seed": -1}`:            "seed: expected an integer of at least 0, found -1",
		`{"seconds": "x"}`:        `seconds: expected a number, found "x"`,
		`{"jitter": 3}`:           "jitter: expected a duration such as 90s, found 3",
		`{"keys": []}`:            "keys=[]: expected at least one",
		`{"env": "a=b"}`:          `env: expected an object of texts, found "a=b"`,
		`{"uri": "x"}`:            "unknown option",
		`{"Internal": 1}`:         "unknown option",
		`{"-": 1}`:                "unknown option",
	} {
		_, err := decode(text, "set")
		if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	_, err := decode(`{"tezt": 1}`, "set")
	var e *robocache.Error
	if !errors.As(err, &e) || e.Where["option"] != "tezt" {
		t.Fatal(err)
	}
	known := strings.Join(e.Where["known"].([]string), " ")
	want := "decode follow_links format gop jitter keys map memory_budget option recording_index " +
		"rows_hz seconds seed split split_at_gaps text"
	if known != want {
		t.Errorf("known options: %s, want %s", known, want)
	}
}
