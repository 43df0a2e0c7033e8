package cudahost

import (
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

func TestALibraryThatIsNoDriver(t *testing.T) {
	if _, err := loadFrom([]string{"libc.so.6"}); !errors.Is(err, robocache.ErrUnsupported) ||
		!strings.Contains(err.Error(), "cuInit") {
		t.Error(err)
	}
	if _, err := loadFrom([]string{"libno-such-driver.so.1"}); !errors.Is(err,
		robocache.ErrUnsupported) {
		t.Error(err)
	}
}
