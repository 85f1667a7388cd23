package controller

import "fmt"

// Debugf, Infof, Warningf and Errorf write a line to the log of the controller.
func Debugf(format string, arguments ...any)   { logHost(0, fmt.Sprintf(format, arguments...)) }
func Infof(format string, arguments ...any)    { logHost(1, fmt.Sprintf(format, arguments...)) }
func Warningf(format string, arguments ...any) { logHost(2, fmt.Sprintf(format, arguments...)) }
func Errorf(format string, arguments ...any)   { logHost(3, fmt.Sprintf(format, arguments...)) }
