package ros2

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

const line = "================================================================================\n"

const idlText = line + `IDL: own/msg/A
// generated from rosidl_adapter
#include "own/msg/B.idl"
module own {
  module msg {
    module A_Constants {
      const int32 N = 3;
      @verbatim (language="comment", text="a (b) \"c\"")
      const string NAME = "x;y";
    };
    typedef double double__9[9];
    typedef own::msg::B own__msg__B__2[2];
    @verbatim (language="comment", text=
      "The A message.")
    struct A {
      std_msgs::msg::Header header;
      @unit (value="m")
      @default (value=1.5)
      double x;
      double__9 cov;
      sequence<float> free;
      sequence<unsigned short, 4> bounded;
      string<5> name;
      sequence<string<3>> names;
      own::msg::B one;
      own__msg__B__2 two;
      sequence<own::msg::B> many;
      long long big;
      octet o; boolean flag, flag2;
      uint8 raw[A_Constants::N];
    };
  };
};
` + line + `IDL: own/msg/B
module own { module msg { struct B { int8 a; @key unsigned long b; }; }; };
` + line + `IDL: std_msgs/msg/Header
module std_msgs { module msg { struct Header { builtin_interfaces::msg::Time stamp; string frame_id; }; }; };
` + line + `IDL: builtin_interfaces/msg/Time
module builtin_interfaces { module msg { struct Time { int32 sec; uint32 nanosec; }; }; };
`

const idlTwin = `std_msgs/Header header
float64 x 1.5
float64[9] cov
float32[] free
uint16[<=4] bounded
string<=5 name
string<=3[] names
B one
own/B[2] two
own/msg/B[] many
int64 big
byte o
bool flag
bool flag2
uint8[3] raw
` + line + "MSG: own/B\nint8 a\nuint32 b\n"

// TestIDL checks that both schema languages describe the same type.
func TestIDL(t *testing.T) {
	a, err := ParseSchema("ros2idl", "own/msg/A", idlText)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ParseSchema("ros2msg", "own/A", idlTwin)
	if err != nil {
		t.Fatal(err)
	}
	if a.sign != b.sign || a.Name != b.Name {
		t.Errorf("%s\n%s", a.sign, b.sign)
	}
}

// TestHostileSchemas checks the errors of hostile texts (ros2.R2, ros2.R4).
func TestHostileSchemas(t *testing.T) {
	chain := func(n, width int) string {
		var b strings.Builder
		for k := range n {
			if k > 0 {
				fmt.Fprintf(&b, "%sMSG: own/T%d\n", line, k)
			}
			for w := range width {
				fmt.Fprintf(&b, "T%d f%d\n", k+1, w)
			}
		}
		fmt.Fprintf(&b, "%sMSG: own/T%d\nuint8 x\n", line, n)
		return b.String()
	}
	for what, c := range map[string]struct {
		text  string
		class error
	}{
		"recursive":       {"A a\n", robocache.ErrUnsupported},
		"recursive twice": {"B[] b\n" + line + "MSG: own/B\nA[] a\n", robocache.ErrUnsupported},
		"deep":            {chain(70, 1), robocache.ErrUnsupported},
		"a bomb":          {chain(40, 2), robocache.ErrResourceLimit},
		"huge arrays":     {"float64[2000000000] a\n", robocache.ErrResourceLimit},
		"huge nested": {
			"B[2000000000] a\n" + line + "MSG: own/B\nuint8[2000000000] x\n",
			robocache.ErrResourceLimit,
		},
		"missing":   {"other/B b\n", robocache.ErrMalformed},
		"no type":   {"float64\n", robocache.ErrMalformed},
		"bad array": {"float64[x] a\n", robocache.ErrMalformed},
		"bad bound": {"float64<=3 a\n", robocache.ErrMalformed},
		"no tag":    {"uint8 a\n" + line + "uint8 b\n", robocache.ErrMalformed},
		"long":      {strings.Repeat("#", maxSchemaText+1), robocache.ErrResourceLimit},
	} {
		if _, err := ParseSchema("ros2msg", "own/msg/A", c.text); !errors.Is(err, c.class) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := ParseSchema("protobuf", "a/A", ""); !errors.Is(err, robocache.ErrUnsupported) {
		t.Error(err)
	}
	s, err := ParseSchema("ros2msg", "own/msg/A", "uint8 a\nwstring w\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewTopic("/a", s, nil); !errors.Is(err, robocache.ErrUnsupported) ||
		!strings.Contains(err.Error(), "field w") {
		t.Error(err)
	}
	for _, text := range []string{
		line + "IDL: own/msg/A\nmodule own { module msg { union A switch (long) { case 1: " +
			"long x; }; }; };",
		line + "IDL: own/msg/A\nmodule own { module msg { struct A { sequence<sequence<long>> " +
			"x; }; }; };",
	} {
		if _, err := ParseSchema("ros2idl", "own/msg/A", text); !errors.Is(err,
			robocache.ErrUnsupported) {
			t.Error(err)
		}
	}
}

// TestOtherFields checks that a type with the name of a common one and other members is decoded by
// its own schema (ros2.R5).
func TestOtherFields(t *testing.T) {
	s, err := ParseSchema("ros2msg", "sensor_msgs/msg/Imu", "float32 only\n")
	if err != nil {
		t.Fatal(err)
	}
	top, err := NewTopic("/imu", s, [][]byte{{0, 1, 0, 0, 0, 0, 128, 63}})
	if err != nil {
		t.Fatal(err)
	}
	if f := top.Fields(); len(f) != 1 || f[0].Feature.Key != "imu.only" ||
		f[0].Feature.DType != robocache.Float32 {
		t.Errorf("%+v", f)
	}
}
