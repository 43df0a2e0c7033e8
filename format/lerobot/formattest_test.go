package lerobot_test

import (
	"testing"

	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

func TestSuite(t *testing.T) {
	for _, name := range []string{"g1_v21", "g1_v30_exact", "g1_h264_v30", "gr00t_picknplace_v20"} {
		formattest.Run(t, formattest.Fixture{URI: realdata.Path(t, name), Format: "lerobot"})
	}
}
