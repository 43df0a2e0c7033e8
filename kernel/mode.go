package kernel

import (
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Mode says how a value between two samples is made.
type Mode uint8

const (
	Linear Mode = iota
	Nearest
	Previous
	Next
	Slerp
	Angle
	Mean
)

var modeNames = [...]string{"linear", "nearest", "previous", "next", "slerp", "angle", "mean"}

func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return "mode(" + strconv.Itoa(int(m)) + ")"
}

// Computes says whether the mode makes values that no sample has.
func (m Mode) Computes() bool { return m == Linear || m >= Slerp }

// ParseMode finds a mode by its name.
func ParseMode(name string) (Mode, error) {
	for i, n := range modeNames {
		if n == name {
			return Mode(i), nil
		}
	}
	return 0, &robocache.Error{Class: robocache.ErrMisuse, Op: "align", Msg: "Invalid mode", Want: "linear, nearest, previous, next, slerp, angle or mean", Got: strconv.Quote(name)}
}

// MarshalText makes Mode a string in JSON.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the name of a mode.
func (m *Mode) UnmarshalText(b []byte) (err error) {
	*m, err = ParseMode(string(b))
	return err
}

// Edge says which value a row gets that lies outside the data or in a gap. It never changes the validity.
type Edge uint8

const (
	Clamp       Edge = iota // the edge sample; in a gap what the mode gives
	Mask                    // zero bits
	Extrapolate             // linear and angle: the line through the two nearest distinct timestamps; else hold
	ErrorEdge               // no output
)

var edgeNames = [...]string{"clamp", "mask", "extrapolate", "error"}

func (e Edge) String() string {
	if int(e) < len(edgeNames) {
		return edgeNames[e]
	}
	return "edge(" + strconv.Itoa(int(e)) + ")"
}

// ParseEdge finds an edge policy by its name.
func ParseEdge(name string) (Edge, error) {
	for i, n := range edgeNames {
		if n == name {
			return Edge(i), nil
		}
	}
	return 0, &robocache.Error{Class: robocache.ErrMisuse, Op: "align", Msg: "Invalid edge", Want: "clamp, mask, extrapolate or error", Got: strconv.Quote(name)}
}

// MarshalText makes Edge a string in JSON.
func (e Edge) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads the name of an edge policy.
func (e *Edge) UnmarshalText(b []byte) (err error) {
	*e, err = ParseEdge(string(b))
	return err
}
