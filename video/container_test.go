package video

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestOtherContainers checks that a file of another container is reported with its type and a
// conversion command.
func TestOtherContainers(t *testing.T) {
	ts := bytes.Repeat(append([]byte{0x47}, make([]byte, 187)...), 3)
	m2ts := bytes.Repeat(append([]byte{0, 0, 0, 1, 0x47}, make([]byte, 187)...), 3)
	for name, b := range map[string]string{
		"WebM":             "\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\x82\x84webm\x42\x87",
		"Matroska":         "\x1a\x45\xdf\xa3\xa3\x42\x86\x81\x01\x42\x82\x88matroska\x42\x87",
		"AVI":              "RIFF\x10\x20\x00\x00AVI LIST",
		"transport stream": string(ts),
		"(ts)":             string(m2ts),
		"raw H.264":        "\x00\x00\x00\x01\x67\x64\x00\x0a",
		"or HEVC":          "\x00\x00\x00\x01\x40\x01\x0c\x01",
		"Ogg":              "OggS\x00\x02\x00\x00\x00\x00\x00\x00",
	} {
		_, err := ReadIndex(
			context.Background(),
			&memory{data: []byte(b + strings.Repeat("\x00", 64))},
			Limits{},
		)
		var e *robocache.Error
		if !errors.As(err, &e) || !errors.Is(err, robocache.ErrUnsupported) ||
			!strings.Contains(e.Msg, name) ||
			!strings.Contains(e.Hint, "ffmpeg") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, head := range []string{
		"",
		"\x00",
		"\x00\x00\x00\x20ftypisom",
		"G",
		"\x00\x00\x00\x01mdat\x00\x00\x00\x00",
	} {
		if name := otherContainer([]byte(head)); name != "" {
			t.Errorf("%q is %s", head, name)
		}
	}
}
