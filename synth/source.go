package synth

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// scheme is the start of the URI of a generated dataset, with a preset and its options:
// synth://heterogeneous?episodes=1000000&cap=120&seed=1.
const scheme = "synth://"

func init() {
	robocache.Register(robocache.Format{
		Name:    "synth",
		Stamped: true,
		Detect: func(_ context.Context, uri string, _ robocache.OpenOptions) (bool, error) {
			return strings.HasPrefix(uri, scheme), nil
		},
		Open: func(
			_ context.Context, uri string, _ robocache.OpenOptions,
		) (robocache.Dataset, error) {
			d, err := openURI(uri)
			if err != nil {
				return nil, err
			}
			d.info.URI = uri
			return d, nil
		},
	})
}

func openURI(uri string) (*Dataset, error) {
	name, query, _ := strings.Cut(strings.TrimPrefix(uri, scheme), "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, misuseError("URI", scheme+"PRESET?episodes=N&seed=N&cap=N", strconv.Quote(uri))
	}
	o := Options{Preset: name}
	for key, list := range values {
		n, err := strconv.ParseUint(list[len(list)-1], 10, 40)
		switch {
		case err != nil:
			return nil, misuseError("URI: "+key, "a number", strconv.Quote(list[len(list)-1]))
		case key == "episodes":
			o.Episodes = int(n)
		case key == "cap":
			o.Cap = int(n)
		case key == "seed":
			o.Seed = n
		default:
			return nil, misuseError("URI", "episodes, cap or seed", strconv.Quote(key))
		}
	}
	return newPreset(o)
}
