package live

// messageDecoder decodes messages into samples.
type messageDecoder struct{}

func newMessageDecoder(*Live) (*messageDecoder, error) { return nil, nil }

func (m *messageDecoder) reset() {}
func (m *messageDecoder) close() {}
