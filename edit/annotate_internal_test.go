package edit

import "testing"

// Annotations of any bytes are read, or are an error. Their numbers are those of the text.
func FuzzParseAnnotations(f *testing.F) {
	f.Add([]byte("episode,from,to,text\n0,1,2,a\n"))
	f.Add([]byte(`[{"episode": 1, "from": 0, "to": 3, "text": "a"}]`))
	f.Add([]byte(`{"ranges": [{"episode": 1, "from_s": 0.5}]}`))
	f.Add([]byte("episode,from_s,style\n3,nan,plan\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseAnnotations(b)
		for _, a := range list {
			if err == nil && a.FromS != nil && *a.FromS != *a.FromS {
				t.Errorf("NaN in %q", b)
			}
		}
	})
}
