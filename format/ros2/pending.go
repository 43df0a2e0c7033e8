package ros2

import "github.com/goatnote-inc/robocache"

type message struct{}

func pending(what string) error {
	return &robocache.Error{Class: robocache.ErrUnsupported, Op: "ros2", Msg: what + " is not decoded"}
}

func key(topic string) string                                      { return topic }
func newTopic(topic string, _ *Schema, _ [][]byte) (*Topic, error) { return nil, pending(topic) }
func (t *Topic) stamp([]byte) (int64, bool, error)                 { return 0, false, pending(t.name) }
func (t *Topic) frameID([]byte) (string, error)                    { return "", pending(t.name) }
func (t *Topic) scan([]byte, func(int, int, int64, bool)) error    { return pending(t.name) }
func parseSchema(_, name, _ string) (*Schema, error)               { return nil, pending(name) }
func knownSchema(string) (*Schema, bool)                           { return nil, false }
func schemaText(string) (string, bool)                             { return "", false }
