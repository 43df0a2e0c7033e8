package edit

// SetStep has fn called before each step of an edit in place.
func SetStep(fn func(string)) { step = fn }
